/// Private to comm/mpi: the messages of one exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
/// On each lane that is not silent a header message travels; a short lane, of at most kInlineBytes
/// and one message, is in it, behind the header. A longer one is cut, by the sizes of its pieces
/// and so alike at both ends, into stretches: a piece of kAloneBytes is one, smaller ones are put
/// together up to that. A stretch follows in messages of at most max_message_bytes. Of these
/// kAtOnce are under way per peer and direction, in the order of the lane at both ends: a message
/// of another group never waits behind more than these, and each that goes or arrives shows that
/// the exchange moves. Each end sends or receives in place where its memory is one run, and through
/// a buffer where not. Messages between two ranks with one tag arrive in order, so a header never
/// overtakes the one of an earlier call.
///
/// Memory, and the work of the progress thread, are those of the lanes in use: a silent lane has no
/// slot, and MPI is asked about requests that are under way alone. A slot that is sent from is as
/// long as its message. One that is received into has room for the longest, since a peer that is
/// out of step may send more than is expected, and not every path of MPI ends well where a message
/// has to be cut; pages of it that nothing has come to take no memory.
///
/// Data goes both ways at once only if each end has asked for the other's before it sends its own:
/// over TCP, MPI writes a long message whole, and a request behind it waits until it has gone. So
/// data is offered to a peer when its header has come, and only then received: a peer's offer
/// reaches this end before its request does. Header messages are all asked for before any is sent.
///
/// prepare() and unpack() are the caller's thread, the rest is the progress thread.
class Transfer {
 public:
  Transfer(MPI_Comm comm, std::int64_t max_message_bytes);

  /// Packs headers, and what does not lie in runs.
  void prepare(const ExchangeCall& call);

  /// Copies what came behind headers, or through the buffer, to its place.
  void unpack();

  void start();

  /// Tests all messages under way. Returns whether any has arrived or gone. Throws Error(kComm)
  /// when a peer is out of step.
  bool progress();

  [[nodiscard]] bool complete() const { return pending_ == 0; }

  /// Ranks of the group from which something has not come; if all has come, those to which
  /// something has not gone. O(lanes in use).
  [[nodiscard]] std::vector<int> missing() const;

  /// After an error: takes back the receives and what has not been posted. What has begun to arrive
  /// goes on arriving, and what was sent is read by its receiver until it has all of it, so the
  /// memory is in use until complete().
  void cancel();

  [[nodiscard]] const ExchangeCall& call() const { return call_; }

 private:
  enum class Kind : std::uint8_t { kHeaderIn, kHeaderOut, kDataIn, kDataOut };

  struct Request {
    std::size_t lane;  ///< of its side
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

  /// A lane on which something travels, as one end sees it.
  struct UsedLane {
    int peer = 0;
    std::int64_t bytes = 0;
    std::int64_t slot = 0;          ///< of its header message, in the side's slots
    std::int64_t slot_bytes = 0;    ///< sent, or room for what comes
    std::size_t first_stretch = 0;  ///< [first_stretch, end_stretch) of the side, where it is long
    std::size_t end_stretch = 0;
    std::int64_t opposite = -1;  ///< the lane with this peer on the other side; -1: silent
    std::int64_t pending = 0;    ///< messages to come, or to go
    Cursor cursor = {};
  };

  /// Memory that grows to what is needed, and is not filled.
  struct Room {
    std::unique_ptr<std::byte[]> bytes;
    std::int64_t capacity = 0;

    void hold(std::int64_t needed);
  };

  /// One direction: its lanes in use in the order in which they are posted, and their memory.
  struct Side {
    std::vector<UsedLane> lanes;
    std::vector<Stretch> stretches;
    Room slots;
    Room buffer;  ///< of stretches that are no runs
  };

  static constexpr std::int64_t kHeaderBytes = sizeof(MessageHeader);
  static constexpr std::int64_t kInlineBytes = 16 * 1024;
  static constexpr std::int64_t kAloneBytes = 64 * 1024;
  static constexpr int kAtOnce = 2;  ///< so that the next is asked for while one arrives

  [[nodiscard]] static bool is_receive(Kind kind) {
    return kind == Kind::kHeaderIn || kind == Kind::kDataIn;
  }

  [[nodiscard]] MessageHeader header_for(const Lane& lane) const;

  [[nodiscard]] bool is_short(std::int64_t bytes) const { return bytes <= inline_bytes_; }

  void list_peers();
  void use_lanes(std::span<const Lane> lanes, Kind kind);
  void pair_lanes();
  static void cut_lane(const Lane& lane, std::vector<Stretch>& stretches);
  void pack_headers();
  void add_slot_copies(const Side& side, std::span<const Lane> lanes, Kind kind);
  void add_buffer_copies(const Side& side, Kind kind);

  [[nodiscard]] Side& side_of(Kind kind) { return is_receive(kind) ? in_ : out_; }

  void on_header(std::size_t lane);
  void check_header(const UsedLane& lane) const;
  void open_data(std::size_t lane, Kind kind);
  MPI_Request post_next(std::size_t lane, Kind kind);
  void count(std::size_t lane, Kind kind, std::int64_t messages);
  void add(std::size_t lane, Kind kind, MPI_Request request);
  void go_on(std::size_t index);
  void forget_done();

  [[nodiscard]] int world(int peer) const { return call_.names.world(peer); }

  [[nodiscard]] int header_tag() const { return static_cast<int>(2 * call_.group); }

  [[nodiscard]] int data_tag() const { return static_cast<int>(2 * call_.group + 1); }

  MPI_Comm comm_;
  std::int64_t max_message_bytes_;
  std::int64_t inline_bytes_;  ///< of a short lane; equal on all ranks
  ExchangeCall call_;
  Side out_;
  Side in_;
  std::vector<int> peers_;                 ///< whose lanes are looked at, from the next rank on
  std::vector<std::int64_t> out_lane_of_;  ///< [W] scratch: of each peer; -1 between calls
  std::vector<Copy> copies_;
  std::vector<MPI_Request> mpi_requests_;  ///< under way
  std::vector<Request> requests_;          ///< beside mpi_requests_
  std::vector<int> done_;                  ///< scratch of MPI_Testsome
  std::int64_t pending_ = 0;
  std::int64_t pending_receives_ = 0;
  bool cancelled_ = false;
};

}  // namespace weft::comm
