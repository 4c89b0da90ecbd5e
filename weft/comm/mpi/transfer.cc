#include "weft/comm/mpi/transfer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "weft/base/hash.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint16_t kVersion = 3;

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

Transfer::Transfer(MPI_Comm comm, std::int64_t max_message_bytes)
    : comm_(comm),
      max_message_bytes_(max_message_bytes),
      inline_bytes_(std::min(kInlineBytes, max_message_bytes)) {
}

void Transfer::Room::hold(std::int64_t needed) {
  if (needed > capacity) {
    bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(needed));
    capacity = needed;
  }
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

/// Lists the peers from the next rank on, so that not all ranks send to rank 0 first.
void Transfer::list_peers() {
  peers_.clear();
  if (call_.peers) {
    peers_.assign(call_.peers->begin(), call_.peers->end());
  } else {
    peers_.resize(call_.send.size());
    std::iota(peers_.begin(), peers_.end(), 0);
  }
  const auto next = std::upper_bound(peers_.begin(), peers_.end(), call_.self);
  std::rotate(peers_.begin(), next, peers_.end());
  if (!peers_.empty() && peers_.back() == call_.self) {
    peers_.pop_back();
  }
}

/// Lists the lanes of a direction that are not silent, and gives them their memory. Sends
/// begin with the next rank, and receives with the one before.
void Transfer::use_lanes(std::span<const Lane> lanes, Kind kind) {
  Side& side = side_of(kind);
  side.lanes.clear();
  side.stretches.clear();
  std::int64_t slots = 0;
  std::int64_t buffered = 0;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int peer = is_receive(kind) ? peers_[peers_.size() - 1 - i] : peers_[i];
    const Lane& lane = lanes[static_cast<std::size_t>(peer)];
    if (lane.silent) {
      continue;
    }
    UsedLane used{.peer = peer, .bytes = lane.bytes(), .slot = slots};
    used.first_stretch = side.stretches.size();
    if (!is_short(used.bytes)) {
      cut_lane(lane, side.stretches);
    }
    const std::int64_t behind = is_short(used.bytes) ? used.bytes : 0;
    used.slot_bytes = kHeaderBytes + (is_receive(kind) ? inline_bytes_ : behind);
    used.end_stretch = side.stretches.size();
    for (std::size_t s = used.first_stretch; s < used.end_stretch; ++s) {
      Stretch& stretch = side.stretches[s];
      stretch.data = run_of(stretch.pieces);
      if (stretch.data == nullptr) {
        stretch.at = buffered;
        buffered += stretch.bytes;
      }
    }
    slots += used.slot_bytes;
    side.lanes.push_back(used);
  }
  side.slots.hold(slots);
  side.buffer.hold(buffered);
}

/// Tells each lane which is that of the same peer in the other direction.
void Transfer::pair_lanes() {
  out_lane_of_.resize(call_.send.size(), -1);
  for (std::size_t i = 0; i < out_.lanes.size(); ++i) {
    out_lane_of_[static_cast<std::size_t>(out_.lanes[i].peer)] = static_cast<std::int64_t>(i);
  }
  for (std::size_t i = 0; i < in_.lanes.size(); ++i) {
    UsedLane& in = in_.lanes[i];
    in.opposite = out_lane_of_[static_cast<std::size_t>(in.peer)];
    if (in.opposite >= 0) {
      out_.lanes[static_cast<std::size_t>(in.opposite)].opposite = static_cast<std::int64_t>(i);
    }
  }
  for (const UsedLane& out : out_.lanes) {
    out_lane_of_[static_cast<std::size_t>(out.peer)] = -1;
  }
}

void Transfer::pack_headers() {
  for (const UsedLane& used : out_.lanes) {
    const MessageHeader header = header_for(call_.send[static_cast<std::size_t>(used.peer)]);
    std::memcpy(out_.slots.bytes.get() + used.slot, &header, sizeof header);
  }
}

/// Notes the copies between the pieces of short lanes and their slots.
void Transfer::add_slot_copies(const Side& side, std::span<const Lane> lanes, Kind kind) {
  for (const UsedLane& used : side.lanes) {
    if (!is_short(used.bytes)) {
      continue;
    }
    std::byte* packed = side.slots.bytes.get() + used.slot + kHeaderBytes;
    for (const Piece& piece : lanes[static_cast<std::size_t>(used.peer)].pieces) {
      const Piece other{packed, piece.bytes};
      copies_.push_back(kind == Kind::kHeaderOut ? Copy{piece, other} : Copy{other, piece});
      packed += piece.bytes;
    }
  }
}

/// Notes the copies between the pieces and the buffer.
void Transfer::add_buffer_copies(const Side& side, Kind kind) {
  for (const Stretch& stretch : side.stretches) {
    if (stretch.data != nullptr) {
      continue;
    }
    std::byte* packed = side.buffer.bytes.get() + stretch.at;
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
  list_peers();
  use_lanes(call.send, Kind::kHeaderOut);
  use_lanes(call.recv, Kind::kHeaderIn);
  pair_lanes();
  pack_headers();
  copies_.clear();
  add_slot_copies(out_, call.send, Kind::kHeaderOut);
  add_buffer_copies(out_, Kind::kDataOut);
  run_copies(call.pool, copies_);
}

void Transfer::unpack() {
  copies_.clear();
  add_buffer_copies(in_, Kind::kDataIn);
  add_slot_copies(in_, call_.recv, Kind::kHeaderIn);
  run_copies(call_.pool, copies_);
}

void Transfer::add(std::size_t lane, Kind kind, MPI_Request request) {
  mpi_requests_.push_back(request);
  requests_.push_back({lane, kind});
}

/// So many messages more are to come or go; negative: fewer.
void Transfer::count(std::size_t lane, Kind kind, std::int64_t messages) {
  pending_ += messages;
  if (is_receive(kind)) {
    pending_receives_ += messages;
  }
  side_of(kind).lanes[lane].pending += messages;
}

void Transfer::start() {
  mpi_requests_.clear();
  requests_.clear();
  // Receives before sends: what is expected when it arrives is not copied twice.
  for (std::size_t i = 0; i < in_.lanes.size(); ++i) {
    const UsedLane& lane = in_.lanes[i];
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(in_.slots.bytes.get() + lane.slot, static_cast<int>(lane.slot_bytes),
                        MPI_BYTE, world(lane.peer), header_tag(), comm_, &request),
              "MPI_Irecv");
    count(i, Kind::kHeaderIn, 1);
    add(i, Kind::kHeaderIn, request);
  }
  for (std::size_t i = 0; i < out_.lanes.size(); ++i) {
    const UsedLane& lane = out_.lanes[i];
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(out_.slots.bytes.get() + lane.slot, static_cast<int>(lane.slot_bytes),
                        MPI_BYTE, world(lane.peer), header_tag(), comm_, &request),
              "MPI_Isend");
    count(i, Kind::kHeaderOut, 1);
    add(i, Kind::kHeaderOut, request);
    if (lane.opposite < 0) {
      open_data(i, Kind::kDataOut);
    }
  }
}

/// Counts the data messages of a lane and posts the first.
void Transfer::open_data(std::size_t lane, Kind kind) {
  const Side& side = side_of(kind);
  UsedLane& used = side_of(kind).lanes[lane];
  used.cursor = {.stretch = used.first_stretch};
  for (std::size_t i = used.first_stretch; i < used.end_stretch; ++i) {
    used.cursor.left += (side.stretches[i].bytes + max_message_bytes_ - 1) / max_message_bytes_;
  }
  count(lane, kind, used.cursor.left);
  for (int i = 0; i < kAtOnce && used.cursor.left > 0; ++i) {
    add(lane, kind, post_next(lane, kind));
  }
}

MPI_Request Transfer::post_next(std::size_t lane, Kind kind) {
  Side& side = side_of(kind);
  UsedLane& used = side.lanes[lane];
  Cursor& cursor = used.cursor;
  while (cursor.at >= side.stretches[cursor.stretch].bytes) {  // also one of no bytes
    ++cursor.stretch;
    cursor.at = 0;
  }
  const Stretch& stretch = side.stretches[cursor.stretch];
  std::byte* const begin =
      stretch.data != nullptr ? stretch.data : side.buffer.bytes.get() + stretch.at;
  std::byte* const data = begin + cursor.at;
  const int bytes = static_cast<int>(std::min(max_message_bytes_, stretch.bytes - cursor.at));
  MPI_Request request = MPI_REQUEST_NULL;
  if (kind == Kind::kDataOut) {
    check_mpi(MPI_Isend(data, bytes, MPI_BYTE, world(used.peer), data_tag(), comm_, &request),
              "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, world(used.peer), data_tag(), comm_, &request),
              "MPI_Irecv");
  }
  cursor.at += bytes;
  --cursor.left;
  return request;
}

/// Throws where the header that has come is not the one that is expected.
void Transfer::check_header(const UsedLane& lane) const {
  MessageHeader header;
  std::memcpy(&header, in_.slots.bytes.get() + lane.slot, sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.group != call_.group) {
    fail(ErrorCode::kComm,
         "{}: {} received a message of another kind from {} (magic {:x}, version {}, group {}); do "
         "all ranks run the same version of Weft?",
         describe(call_.stamp, call_.names.name), call_.names.rank(call_.self),
         call_.names.rank(lane.peer), header.magic, header.version, header.group);
  }
  if (!(stamp_of(header) == call_.stamp)) {
    throw out_of_step(call_.names, call_.self, call_.stamp, lane.peer, stamp_of(header));
  }
  const Lane& expected = call_.recv[static_cast<std::size_t>(lane.peer)];
  const LaneSize sent{header.bytes, header.pieces, false};
  if (sent != size_of(expected) || header.piece_hash != hash_pieces(expected)) {
    throw wrong_size(call_.names, call_.stamp, lane.peer, sent, call_.self, size_of(expected));
  }
}

void Transfer::on_header(std::size_t lane) {
  const UsedLane& used = in_.lanes[lane];
  check_header(used);
  if (call_.arrivals != nullptr) {
    call_.arrivals->last_ns = trace::now_ns();
    call_.arrivals->peers[static_cast<std::size_t>(used.peer)] = {
        .rank = world(used.peer),
        .begin_ns = call_.arrivals->last_ns,
        .end_ns = call_.arrivals->last_ns,
        .bytes = used.bytes};
  }
  // In this order, see Transfer.
  if (used.opposite >= 0) {
    open_data(static_cast<std::size_t>(used.opposite), Kind::kDataOut);
  }
  open_data(lane, Kind::kDataIn);
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
    const Request& request = requests_[static_cast<std::size_t>(index)];
    count(request.lane, request.kind, -1);
  }
  for (std::size_t i = 0; i < done_.size() && !cancelled_; ++i) {
    go_on(static_cast<std::size_t>(done_[i]));
  }
  forget_done();
  return true;
}

/// What follows a message that has arrived or gone.
void Transfer::go_on(std::size_t index) {
  const Request request = requests_[index];
  if (request.kind == Kind::kHeaderIn) {
    on_header(request.lane);
    return;
  }
  const UsedLane& used = side_of(request.kind).lanes[request.lane];
  if (request.kind == Kind::kDataIn && call_.arrivals != nullptr) {
    call_.arrivals->peers[static_cast<std::size_t>(used.peer)].end_ns = trace::now_ns();
  }
  if (request.kind != Kind::kHeaderOut && used.cursor.left > 0) {
    mpi_requests_[index] = post_next(request.lane, request.kind);
  }
}

/// Closes the gaps that requests have left which are done, from behind: the last one under way
/// takes the place.
void Transfer::forget_done() {
  std::sort(done_.begin(), done_.end(), std::greater<>());
  for (const int index : done_) {
    const auto i = static_cast<std::size_t>(index);
    if (mpi_requests_[i] == MPI_REQUEST_NULL) {
      mpi_requests_[i] = mpi_requests_.back();
      requests_[i] = requests_.back();
      mpi_requests_.pop_back();
      requests_.pop_back();
    }
  }
}

std::vector<int> Transfer::missing() const {
  std::vector<int> ranks;
  for (const UsedLane& lane : pending_receives_ > 0 ? in_.lanes : out_.lanes) {
    if (lane.pending > 0) {
      ranks.push_back(lane.peer);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Transfer::cancel() {
  cancelled_ = true;
  for (const Kind kind : {Kind::kDataIn, Kind::kDataOut}) {
    std::vector<UsedLane>& lanes = side_of(kind).lanes;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      count(i, kind, -std::exchange(lanes[i].cursor.left, 0));
    }
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (is_receive(requests_[i].kind) && mpi_requests_[i] != MPI_REQUEST_NULL) {
      check_mpi(MPI_Cancel(&mpi_requests_[i]), "MPI_Cancel");
    }
  }
}

}  // namespace weft::comm
