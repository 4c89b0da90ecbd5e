#include "weft/comm/mpi/transfer.h"

#include <algorithm>
#include <cstring>

#include "weft/base/hash.h"

namespace weft::comm {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint16_t kVersion = 1;

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
      if (piece.bytes > 0) {
        std::memcpy(out, piece.data, static_cast<std::size_t>(piece.bytes));
        out += piece.bytes;
      }
    }
  }
  out_bytes_[peer] = static_cast<int>(out - out_slot(peer));
}

void Transfer::prepare(const ExchangeCall& call) {
  call_ = call;
  cancelled_ = false;
  const auto self = static_cast<std::size_t>(call.self);
  copy_own_lane(call.names.name, call.stamp, call.send[self], call.recv[self]);
  for (std::size_t peer = 0; peer < call.send.size(); ++peer) {
    out_bytes_[peer] = 0;
    if (peer != self && !call.send[peer].silent) {
      pack(peer);
    }
  }
}

void Transfer::unpack() {
  for (std::size_t peer = 0; peer < call_.recv.size(); ++peer) {
    const Lane& lane = call_.recv[peer];
    if (static_cast<int>(peer) == call_.self || lane.silent || lane.bytes() > kInlineBytes) {
      continue;
    }
    const std::byte* in = in_slot(peer) + sizeof(MessageHeader);
    for (const Piece& piece : lane.pieces) {
      if (piece.bytes > 0) {
        std::memcpy(piece.data, in, static_cast<std::size_t>(piece.bytes));
        in += piece.bytes;
      }
    }
  }
}

void Transfer::add(int peer, Kind kind, MPI_Request request) {
  mpi_requests_.push_back(request);
  requests_.push_back({peer, kind});
  ++pending_;
  pending_receives_ += kind == Kind::kOut ? 0 : 1;
  ++(kind == Kind::kOut ? pending_out_ : pending_in_)[static_cast<std::size_t>(peer)];
}

void Transfer::finished(const Request& request) {
  --pending_;
  pending_receives_ -= request.kind == Kind::kOut ? 0 : 1;
  --(request.kind == Kind::kOut ? pending_out_
                                : pending_in_)[static_cast<std::size_t>(request.peer)];
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
      add(peer, Kind::kOut, request);
      post_data(peer, call_.send[p], Kind::kOut);
    }
  }
}

void Transfer::post_data(int peer, const Lane& lane, Kind kind) {
  if (lane.bytes() <= kInlineBytes) {
    return;
  }
  for (const Piece& piece : lane.pieces) {
    for (std::int64_t at = 0; at < piece.bytes; at += max_message_bytes_) {
      auto* const data = static_cast<std::byte*>(piece.data) + at;
      const int bytes = static_cast<int>(std::min(max_message_bytes_, piece.bytes - at));
      MPI_Request request = MPI_REQUEST_NULL;
      if (kind == Kind::kOut) {
        check_mpi(MPI_Isend(data, bytes, MPI_BYTE, world(peer), data_tag(), comm_, &request),
                  "MPI_Isend");
      } else {
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, world(peer), data_tag(), comm_, &request),
                  "MPI_Irecv");
      }
      add(peer, kind, request);
    }
  }
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
  post_data(peer, lane, Kind::kDataIn);
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
    const Request request = requests_[static_cast<std::size_t>(index)];
    if (request.kind == Kind::kHeaderIn && !cancelled_) {
      on_header(request.peer);
    }
  }
  return true;
}

std::vector<int> Transfer::missing() const {
  const std::vector<int>& pending = pending_receives_ > 0 ? pending_in_ : pending_out_;
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
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].kind != Kind::kOut && mpi_requests_[i] != MPI_REQUEST_NULL) {
      check_mpi(MPI_Cancel(&mpi_requests_[i]), "MPI_Cancel");
    }
  }
}

void Transfer::forget_sends() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].kind == Kind::kOut && mpi_requests_[i] != MPI_REQUEST_NULL) {
      check_mpi(MPI_Request_free(&mpi_requests_[i]), "MPI_Request_free");
      finished(requests_[i]);
    }
  }
}

}  // namespace weft::comm
