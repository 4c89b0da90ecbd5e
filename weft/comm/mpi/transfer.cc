#include "weft/comm/mpi/transfer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/base/hash.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint16_t kVersion = 2;

std::uint64_t hash_pieces(const Lane& lane) {
  std::uint64_t hash = 0;
  for (const Piece& piece : lane.pieces) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(piece.bytes));
  }
  return hash;
}

Stamp stamp_of(const MessageHeader& header) {
  return {.sequence = header.sequence,
          .collective = static_cast<Collective>(header.collective),
          .size = header.size,
          .arguments = header.arguments};
}

}  // namespace

Transfer::Transfer(MPI_Comm comm, int ranks, std::int64_t max_message_bytes)
    : comm_(comm),
      max_message_bytes_(max_message_bytes),
      out_slots_(static_cast<std::size_t>(ranks) * kSlotBytes),
      in_slots_(out_slots_.size()),
      out_bytes_(static_cast<std::size_t>(ranks)),
      pending_in_(static_cast<std::size_t>(ranks)),
      pending_out_(static_cast<std::size_t>(ranks)) {
}

MessageHeader Transfer::header_for(const Lane& lane) const {
  return {.magic = kMagic,
          .version = kVersion,
          .collective = static_cast<std::uint16_t>(call_.stamp.collective),
          .group = call_.group,
          .sequence = call_.stamp.sequence,
          .size = call_.stamp.size,
          .arguments = call_.stamp.arguments,
          .bytes = lane.bytes(),
          .piece_hash = hash_pieces(lane),
          .pieces = static_cast<std::int64_t>(lane.pieces.size())};
}

void Transfer::pack(std::size_t peer) {
  const Lane& lane = call_.send[peer];
  const MessageHeader header = header_for(lane);
  std::byte* out = out_slot(peer);
  std::memcpy(out, &header, sizeof header);
  out += sizeof header;
  if (header.bytes <= kInlineBytes) {
    for (const Piece& piece : lane.pieces) {
      run_copies(nullptr, std::array{Copy{piece, {out, piece.bytes}}});
      out += piece.bytes;
    }
  }
  out_bytes_[peer] = static_cast<int>(out - out_slot(peer));
}

/// Small pieces are put together, so that many tables do not make many messages.
void Transfer::cut_lane(const Lane& lane, std::vector<Stretch>& stretches) {
  bool open = false;  // whether the last stretch takes more pieces
  for (std::size_t i = 0; i < lane.pieces.size(); ++i) {
    const std::int64_t bytes = lane.pieces[i].bytes;
    if (!open || bytes >= kAloneBytes) {
      stretches.push_back({.pieces = lane.pieces.subspan(i, 0)});
    }
    Stretch& last = stretches.back();
    last.bytes += bytes;
    last.pieces = {last.pieces.data(), last.pieces.size() + 1};
    open = last.bytes < kAloneBytes;
  }
}

/// Where pieces lie one behind the other; null where they do not.
std::byte* run_of(std::span<const Piece> pieces) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) {
      continue;
    }
    auto* const data = static_cast<std::byte*>(piece.data);
    if (piece.row_bytes != 0 || (end != nullptr && data != end)) {
      return nullptr;
    }
    begin = begin == nullptr ? data : begin;
    end = data + piece.bytes;
  }
  return begin;
}

void Transfer::cut_lanes(std::span<const Lane> lanes, Cut& cut) {
  cut.stretches.clear();
  cut.begin.clear();
  std::int64_t buffered = 0;
  for (std::size_t peer = 0; peer < lanes.size(); ++peer) {
    const std::size_t first = cut.stretches.size();
    cut.begin.push_back(first);
    if (static_cast<int>(peer) == call_.self || lanes[peer].bytes() <= kInlineBytes) {
      continue;
    }
    cut_lane(lanes[peer], cut.stretches);
    for (Stretch& stretch : std::span(cut.stretches).subspan(first)) {
      stretch.data = run_of(stretch.pieces);
      if (stretch.data == nullptr) {
        stretch.at = buffered;
        buffered += stretch.bytes;
      }
    }
  }
  cut.begin.push_back(cut.stretches.size());
  cut.cursors.assign(lanes.size(), {});
  if (buffered > cut.capacity) {
    cut.buffer = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(buffered));
    cut.capacity = buffered;
  }
}

/// Notes the copies between the pieces and the buffer.
void Transfer::add_buffer_copies(const Cut& cut, Kind kind) {
  for (const Stretch& stretch : cut.stretches) {
    if (stretch.data != nullptr) {
      continue;
    }
    std::byte* packed = cut.buffer.get() + stretch.at;
    for (const Piece& piece : stretch.pieces) {
      const Piece other{packed, piece.bytes};
      copies_.push_back(kind == Kind::kDataOut ? Copy{piece, other} : Copy{other, piece});
      packed += piece.bytes;
    }
  }
}

void Transfer::prepare(const ExchangeCall& call) {
  call_ = call;
  cancelled_ = false;
  for (std::size_t peer = 0; peer < call.send.size(); ++peer) {
    out_bytes_[peer] = 0;
    if (static_cast<int>(peer) != call.self && !call.send[peer].silent) {
      pack(peer);
    }
  }
  cut_lanes(call.send, out_);
  cut_lanes(call.recv, in_);
  copies_.clear();
  add_buffer_copies(out_, Kind::kDataOut);
  run_copies(call.pool, copies_);
}

void Transfer::unpack() {
  copies_.clear();
  add_buffer_copies(in_, Kind::kDataIn);
  for (std::size_t peer = 0; peer < call_.recv.size(); ++peer) {
    const Lane& lane = call_.recv[peer];
    if (static_cast<int>(peer) == call_.self || lane.silent || lane.bytes() > kInlineBytes) {
      continue;
    }
    std::byte* in = in_slot(peer) + sizeof(MessageHeader);
    for (const Piece& piece : lane.pieces) {
      copies_.push_back({{in, piece.bytes}, piece});
      in += piece.bytes;
    }
  }
  run_copies(call_.pool, copies_);
}

void Transfer::add(int peer, Kind kind, MPI_Request request) {
  mpi_requests_.push_back(request);
  requests_.push_back({peer, kind});
}

/// So many messages more are to come or go; negative: fewer.
void Transfer::count(int peer, Kind kind, std::int64_t messages) {
  pending_ += messages;
  if (is_receive(kind)) {
    pending_receives_ += messages;
  }
  (is_receive(kind) ? pending_in_ : pending_out_)[static_cast<std::size_t>(peer)] += messages;
}

void Transfer::finished(const Request& request) {
  count(request.peer, request.kind, -1);
}

void Transfer::start() {
  mpi_requests_.clear();
  requests_.clear();
  const int ranks = static_cast<int>(call_.send.size());
  // Beginning with the next rank, so that not all send to rank 0 first. Receives before sends: what
  // is expected when it arrives is not copied twice.
  for (int i = 1; i < ranks; ++i) {
    const int peer = (call_.self + ranks - i) % ranks;
    const auto p = static_cast<std::size_t>(peer);
    if (!call_.recv[p].silent) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(
          MPI_Irecv(in_slot(p), kSlotBytes, MPI_BYTE, world(peer), header_tag(), comm_, &request),
          "MPI_Irecv");
      count(peer, Kind::kHeaderIn, 1);
      add(peer, Kind::kHeaderIn, request);
    }
  }
  for (int i = 1; i < ranks; ++i) {
    const int peer = (call_.self + i) % ranks;
    const auto p = static_cast<std::size_t>(peer);
    if (out_bytes_[p] > 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(out_slot(p), out_bytes_[p], MPI_BYTE, world(peer), header_tag(), comm_,
                          &request),
                "MPI_Isend");
      count(peer, Kind::kHeaderOut, 1);
      add(peer, Kind::kHeaderOut, request);
      if (call_.recv[p].silent) {
        open_data(peer, Kind::kDataOut);
      }
    }
  }
}

/// Counts the messages of a lane and posts the first.
void Transfer::open_data(int peer, Kind kind) {
  Cut& cut = cut_of(kind);
  const auto p = static_cast<std::size_t>(peer);
  Cursor& cursor = cut.cursors[p];
  cursor = {.stretch = cut.begin[p]};
  for (std::size_t i = cut.begin[p]; i < cut.begin[p + 1]; ++i) {
    cursor.left += (cut.stretches[i].bytes + max_message_bytes_ - 1) / max_message_bytes_;
  }
  count(peer, kind, cursor.left);
  for (int i = 0; i < kAtOnce && cursor.left > 0; ++i) {
    add(peer, kind, post_next(peer, kind));
  }
}

MPI_Request Transfer::post_next(int peer, Kind kind) {
  Cut& cut = cut_of(kind);
  Cursor& cursor = cut.cursors[static_cast<std::size_t>(peer)];
  while (cursor.at >= cut.stretches[cursor.stretch].bytes) {  // also one of no bytes
    ++cursor.stretch;
    cursor.at = 0;
  }
  const Stretch& stretch = cut.stretches[cursor.stretch];
  std::byte* const begin = stretch.data != nullptr ? stretch.data : cut.buffer.get() + stretch.at;
  std::byte* const data = begin + cursor.at;
  const int bytes = static_cast<int>(std::min(max_message_bytes_, stretch.bytes - cursor.at));
  MPI_Request request = MPI_REQUEST_NULL;
  if (kind == Kind::kDataOut) {
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, world(peer), data_tag(), comm_, &request),
              "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, world(peer), data_tag(), comm_, &request),
              "MPI_Irecv");
  }
  cursor.at += bytes;
  --cursor.left;
  return request;
}

void Transfer::on_header(int peer) {
  const auto p = static_cast<std::size_t>(peer);
  MessageHeader header;
  std::memcpy(&header, in_slot(p), sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.group != call_.group) {
    fail(ErrorCode::kComm,
         "{}: {} received a message of another kind from {} (magic {:x}, version {}, group {}); do "
         "all ranks run the same version of Weft?",
         describe(call_.stamp, call_.names.name), call_.names.rank(call_.self),
         call_.names.rank(peer), header.magic, header.version, header.group);
  }
  if (!(stamp_of(header) == call_.stamp)) {
    throw out_of_step(call_.names, call_.self, call_.stamp, peer, stamp_of(header));
  }
  const Lane& lane = call_.recv[p];
  const LaneSize sent{header.bytes, header.pieces, false};
  if (sent != size_of(lane) || header.piece_hash != hash_pieces(lane)) {
    throw wrong_size(call_.names, call_.stamp, peer, sent, call_.self, size_of(lane));
  }
  if (call_.arrivals != nullptr) {
    call_.arrivals->last_ns = trace::now_ns();
    call_.arrivals->peers[p] = {.rank = world(peer),
                                .begin_ns = call_.arrivals->last_ns,
                                .end_ns = call_.arrivals->last_ns,
                                .bytes = header.bytes};
  }
  // In this order, see Transfer.
  if (out_bytes_[p] > 0) {
    open_data(peer, Kind::kDataOut);
  }
  open_data(peer, Kind::kDataIn);
}

bool Transfer::progress() {
  int completed = 0;
  done_.resize(mpi_requests_.size());
  check_mpi(MPI_Testsome(static_cast<int>(mpi_requests_.size()), mpi_requests_.data(), &completed,
                         done_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (completed == MPI_UNDEFINED || completed == 0) {
    return false;
  }
  done_.resize(static_cast<std::size_t>(completed));
  // All are counted before any header is looked at: one out of step ends the loop.
  for (const int index : done_) {
    finished(requests_[static_cast<std::size_t>(index)]);
  }
  for (const int index : done_) {
    if (!cancelled_) {
      go_on(static_cast<std::size_t>(index));
    }
  }
  return true;
}

/// What follows a message that has arrived or gone.
void Transfer::go_on(std::size_t index) {
  const Request request = requests_[index];
  const auto p = static_cast<std::size_t>(request.peer);
  if (request.kind == Kind::kHeaderIn) {
    on_header(request.peer);
    return;
  }
  if (request.kind == Kind::kDataIn && call_.arrivals != nullptr) {
    call_.arrivals->peers[p].end_ns = trace::now_ns();
  }
  if (request.kind != Kind::kHeaderOut && cut_of(request.kind).cursors[p].left > 0) {
    mpi_requests_[index] = post_next(request.peer, request.kind);
  }
}

std::vector<int> Transfer::missing() const {
  const std::vector<std::int64_t>& pending = pending_receives_ > 0 ? pending_in_ : pending_out_;
  std::vector<int> ranks;
  for (std::size_t peer = 0; peer < pending.size(); ++peer) {
    if (pending[peer] > 0) {
      ranks.push_back(static_cast<int>(peer));
    }
  }
  return ranks;
}

void Transfer::cancel() {
  cancelled_ = true;
  for (const Kind kind : {Kind::kDataIn, Kind::kDataOut}) {
    for (std::size_t peer = 0; peer < cut_of(kind).cursors.size(); ++peer) {
      const std::int64_t left = std::exchange(cut_of(kind).cursors[peer].left, 0);
      count(static_cast<int>(peer), kind, -left);
    }
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (is_receive(requests_[i].kind) && mpi_requests_[i] != MPI_REQUEST_NULL) {
      check_mpi(MPI_Cancel(&mpi_requests_[i]), "MPI_Cancel");
    }
  }
}

}  // namespace weft::comm
