/// Private to comm/mpi: the messages of one exchange.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/comm/copies.h"
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
/// To each peer goes one header message; a lane of at most kInlineBytes travels behind the header.
/// A longer one is cut, by the sizes of its pieces and so alike at both ends, into stretches: a
/// piece of kAloneBytes is one, smaller ones are put together up to that. A stretch follows in
/// messages of at most max_message_bytes. Of these kAtOnce are under way per peer and direction, in
/// the order of the lane at both ends: a message of another group never waits behind more than
/// these, and each that goes or arrives shows that the exchange moves. Each end sends or receives
/// in place where its memory is one run, and through a buffer where not. Messages between two ranks
/// with one tag arrive in order, so a header never overtakes the one of an earlier call.
///
/// Data goes both ways at once only if each end has asked for the other's before it sends its own:
/// over TCP, MPI writes a long message whole, and a request behind it waits until it has gone. So
/// data is offered to a peer when its header has come, and only then received: a peer's offer
/// reaches this end before its request does.
///
/// prepare() and unpack() are the caller's thread, the rest is the progress thread.
class Transfer {
 public:
  Transfer(MPI_Comm comm, int ranks, std::int64_t max_message_bytes);

  /// Packs headers, and what does not lie in runs.
  void prepare(const ExchangeCall& call);

  /// Copies what came behind headers, or through the buffer, to its place.
  void unpack();

  void start();

  /// Tests all messages. Returns whether any has arrived or gone. Throws Error(kComm) when a peer
  /// is out of step.
  bool progress();

  [[nodiscard]] bool complete() const { return pending_ == 0; }

  /// Ranks of the group from which something has not come; if all has come, those to which
  /// something has not gone.
  [[nodiscard]] std::vector<int> missing() const;

  /// After an error: takes back the receives and what has not been posted. What has begun to arrive
  /// goes on arriving, and what was sent is read by its receiver until it has all of it, so the
  /// memory is in use until complete().
  void cancel();

  [[nodiscard]] const ExchangeCall& call() const { return call_; }

 private:
  enum class Kind : std::uint8_t { kHeaderIn, kHeaderOut, kDataIn, kDataOut };

  struct Request {
    int peer;
    Kind kind;
  };

  /// Consecutive pieces of a lane that travel together.
  struct Stretch {
    std::byte* data = nullptr;  ///< where it lies as one run; null: `at` in the buffer
    std::int64_t at = -1;       ///< in the buffer
    std::int64_t bytes = 0;
    std::span<const Piece> pieces;
  };

  /// Where in its stretches a lane goes on.
  struct Cursor {
    std::size_t stretch = 0;
    std::int64_t at = 0;    ///< bytes of the stretch
    std::int64_t left = 0;  ///< messages that have not been posted
  };

  /// The stretches of the lanes of one direction, and the buffer of those that are no runs.
  struct Cut {
    std::vector<Stretch> stretches;
    std::vector<std::size_t> begin;  ///< [W + 1] first stretch of each peer
    std::vector<Cursor> cursors;     ///< [W]
    std::unique_ptr<std::byte[]> buffer;
    std::int64_t capacity = 0;
  };

  static constexpr std::size_t kSlotBytes = 4096;
  static constexpr std::int64_t kInlineBytes = kSlotBytes - sizeof(MessageHeader);
  static constexpr std::int64_t kAloneBytes = 64 * 1024;
  static constexpr int kAtOnce = 2;  ///< so that the next is asked for while one arrives

  [[nodiscard]] static bool is_receive(Kind kind) {
    return kind == Kind::kHeaderIn || kind == Kind::kDataIn;
  }

  [[nodiscard]] MessageHeader header_for(const Lane& lane) const;
  void pack(std::size_t peer);
  void cut_lanes(std::span<const Lane> lanes, Cut& cut);
  static void cut_lane(const Lane& lane, std::vector<Stretch>& stretches);
  void add_buffer_copies(const Cut& cut, Kind kind);
  void on_header(int peer);

  [[nodiscard]] Cut& cut_of(Kind kind) { return kind == Kind::kDataOut ? out_ : in_; }

  void open_data(int peer, Kind kind);
  MPI_Request post_next(int peer, Kind kind);
  void count(int peer, Kind kind, std::int64_t messages);
  void add(int peer, Kind kind, MPI_Request request);
  void finished(const Request& request);
  void go_on(std::size_t index);

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
  Cut out_;
  Cut in_;
  std::vector<Copy> copies_;
  std::vector<MPI_Request> mpi_requests_;
  std::vector<Request> requests_;         ///< beside mpi_requests_
  std::vector<int> done_;                 ///< scratch of MPI_Testsome
  std::vector<std::int64_t> pending_in_;  ///< messages to come, per peer
  std::vector<std::int64_t> pending_out_;
  std::int64_t pending_ = 0;
  std::int64_t pending_receives_ = 0;
  bool cancelled_ = false;
};

}  // namespace weft::comm
