/// Private to comm/mpi: the messages of one exchange.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/mpi_calls.h"

namespace weft::comm {

/// What every message between two ranks begins with. Both ends have the same byte order.
struct MessageHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t collective = 0;
  std::int64_t group = 0;
  std::uint64_t sequence = 0;
  std::int64_t size = 0;
  std::uint64_t arguments = 0;
  std::int64_t bytes = 0;        ///< of the lane
  std::uint64_t piece_hash = 0;  ///< of the sizes of its pieces
  std::int64_t pieces = 0;
};

/// The messages of one exchange of a group, reused for the next.
///
/// To each peer goes one header message; a lane of at most kInlineBytes travels behind the header,
/// a longer one follows in messages of at most max_message_bytes, which the receiver takes straight
/// into its buffer once it has compared the header. Messages between two ranks with one tag arrive
/// in order, so a header never overtakes the one of an earlier call.
///
/// prepare() and unpack() are the caller's thread, the rest is the progress thread.
class Transfer {
 public:
  Transfer(MPI_Comm comm, int ranks, std::int64_t max_message_bytes);

  /// Packs headers and copies what the rank sends to itself.
  void prepare(const ExchangeCall& call);

  /// Copies what came behind headers to its place.
  void unpack();

  void start();

  /// Tests all messages. Returns whether any has arrived or gone. Throws Error(kComm) when a peer
  /// is out of step.
  bool progress();

  [[nodiscard]] bool complete() const { return pending_ == 0; }

  /// Ranks of the group from which something has not come; if all has come, those to which
  /// something has not gone.
  [[nodiscard]] std::vector<int> missing() const;

  /// After an error: takes back the receives. What has begun to arrive goes on arriving, so the
  /// memory is in use until drained().
  void cancel();

  [[nodiscard]] bool drained() const { return pending_receives_ == 0; }

  /// Gives up sends that nobody will ever receive.
  void forget_sends();

  [[nodiscard]] const ExchangeCall& call() const { return call_; }

 private:
  enum class Kind : std::uint8_t { kHeaderIn, kDataIn, kOut };

  struct Request {
    int peer;
    Kind kind;
  };

  static constexpr std::size_t kSlotBytes = 4096;
  static constexpr std::int64_t kInlineBytes = kSlotBytes - sizeof(MessageHeader);

  [[nodiscard]] MessageHeader header_for(const Lane& lane) const;
  void pack(std::size_t peer);
  void on_header(int peer);
  void post_data(int peer, const Lane& lane, Kind kind);
  void add(int peer, Kind kind, MPI_Request request);
  void finished(const Request& request);

  [[nodiscard]] int world(int peer) const { return call_.names.world(peer); }

  [[nodiscard]] int header_tag() const { return static_cast<int>(2 * call_.group); }

  [[nodiscard]] int data_tag() const { return static_cast<int>(2 * call_.group + 1); }

  [[nodiscard]] std::byte* out_slot(std::size_t peer) { return &out_slots_[peer * kSlotBytes]; }

  [[nodiscard]] std::byte* in_slot(std::size_t peer) { return &in_slots_[peer * kSlotBytes]; }

  MPI_Comm comm_;
  std::int64_t max_message_bytes_;
  ExchangeCall call_;
  std::vector<std::byte> out_slots_;
  std::vector<std::byte> in_slots_;
  std::vector<int> out_bytes_;  ///< of each header message, 0 where the lane is silent
  std::vector<MPI_Request> mpi_requests_;
  std::vector<Request> requests_;  ///< beside mpi_requests_
  std::vector<int> done_;          ///< scratch of MPI_Testsome
  std::vector<int> pending_in_;    ///< messages to come, per peer
  std::vector<int> pending_out_;
  std::int64_t pending_ = 0;
  std::int64_t pending_receives_ = 0;
  bool cancelled_ = false;
};

}  // namespace weft::comm
