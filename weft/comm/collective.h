/// The plain values of collectives: what is called, with which numbers, over which memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft::comm {

/// What ranks do together. A communicator counts its traffic by these.
enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBarrier,
  kSplit,
  kMerge,
};

inline constexpr int kNumCollectives = 8;

/// "all_reduce", "reduce_scatter", ...
std::string_view to_string(Collective collective);

/// Operations of reductions, element by element.
enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };

/// Returns "sum", "min" or "max".
std::string_view to_string(ReduceOp op);

/// How the exchanges of a group reach other hosts.
enum class Form : std::uint8_t {
  kFlat,          ///< every rank sends to every rank
  kHierarchical,  ///< inside hosts, one message for each pair of hosts, inside hosts
};

/// Returns "flat" or "hierarchical".
std::string_view to_string(Form form);

/// Bytes that travel together: one run, or rows of a matrix. The receiving side writes through
/// `data`, the sending side only reads. Row i of the piece is `row_bytes` at
/// data + stride · (rows == null ? i : rows[i]).
struct Piece {
  void* data = nullptr;
  std::int64_t bytes = 0;              ///< of all rows
  std::int64_t row_bytes = 0;          ///< 0: one run of `bytes`
  std::int64_t stride = 0;             ///< bytes, where there are rows
  const std::int32_t* rows = nullptr;  ///< [bytes / row_bytes]; a receiver's are all different
};

/// What travels from one rank to one other in one exchange: the pieces, one after the other. Both
/// ends give the same pieces: as many, each of the same size. How a piece lies in memory is each
/// end's own business; rows at both ends have one length. A silent lane is one on which nothing is
/// sent, and both ends say so.
struct Lane {
  std::span<const Piece> pieces;
  bool silent = false;
  std::int64_t known_bytes = -1;  ///< of all pieces; -1: who made the lane did not add them up

  /// Returns the bytes of all pieces. O(pieces) where they are not known.
  [[nodiscard]] std::int64_t bytes() const {
    if (known_bytes >= 0) {
      return known_bytes;
    }
    std::int64_t total = 0;
    for (const Piece& piece : pieces) {
      total += piece.bytes;
    }
    return total;
  }

  /// Returns the lane of these pieces, silent where they have no bytes: for exchanges whose ends
  /// both know the lengths. What arrives on a silent lane may have no pieces.
  [[nodiscard]] static Lane of(std::span<const Piece> pieces) {
    Lane lane{.pieces = pieces, .silent = false};
    lane.known_bytes = lane.bytes();
    lane.silent = lane.known_bytes == 0;
    return lane;
  }
};

/// A non-owning reference to a callable void(std::span<const Lane> arrived): what a rank does with
/// the lanes of an exchange while they are where they are. No allocation.
class LaneReader {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, LaneReader>)
  LaneReader(F&& f)  // NOLINT(google-explicit-constructor): a parameter type, like string_view
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, std::span<const Lane> arrived) {
          (*static_cast<std::remove_reference_t<F>*>(object))(arrived);
        }) {}

  void operator()(std::span<const Lane> arrived) const { call_(object_, arrived); }

 private:
  void* object_;
  void (*call_)(void*, std::span<const Lane>);
};

/// A non-owning reference to a callable void(std::span<std::byte> block, std::span<const std::byte>
/// later): takes the block of the ranks that come after into the block of some ranks. No
/// allocation.
class BlockMerger {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, BlockMerger>)
  BlockMerger(F&& f)  // NOLINT(google-explicit-constructor): a parameter type, like string_view
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, std::span<std::byte> block, std::span<const std::byte> later) {
          (*static_cast<std::remove_reference_t<F>*>(object))(block, later);
        }) {}

  void operator()(std::span<std::byte> block, std::span<const std::byte> later) const {
    call_(object_, block, later);
  }

 private:
  void* object_;
  void (*call_)(void*, std::span<std::byte>, std::span<const std::byte>);
};

/// Takes the bytes of the ranks that come after into those of some ranks, where lengths differ.
using BytesMerger =
    std::function<void(std::vector<std::byte>& block, std::span<const std::byte> later)>;

/// What every call carries, so that ranks out of step are named instead of hanging.
struct Stamp {
  std::uint64_t sequence = 0;  ///< calls on this communicator before this one
  Collective collective = Collective::kBarrier;
  std::int64_t size = -1;       ///< bytes that must be equal on all ranks, -1 where they may differ
  std::uint64_t arguments = 0;  ///< hash of what else must be equal: type, operation, root

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

/// What a rank sent to others. Headers are not counted; an empty message is one message.
struct Traffic {
  /// The counts of one collective.
  struct Entry {
    std::int64_t calls = 0;  ///< exchanges
    std::int64_t messages = 0;
    std::int64_t bytes = 0;
    std::int64_t cross_host_messages = 0;  ///< of these to other hosts
    std::int64_t cross_host_bytes = 0;

    Entry& operator+=(const Entry& other);
  };

  std::array<Entry, kNumCollectives> by_collective;

  [[nodiscard]] const Entry& of(Collective collective) const {
    return by_collective[static_cast<std::size_t>(collective)];
  }

  /// Returns the counts of all collectives together.
  [[nodiscard]] Entry total() const;

  Traffic& operator+=(const Traffic& other);
};

/// Says what it means to a job that these ranks of the world are lost: a sentence without a full
/// stop, or nothing.
using LostRanksText = std::function<std::string(std::span<const int> ranks)>;

/// "all_gather #17 of group 'dense'".
std::string describe(const Stamp& stamp, std::string_view group);

}  // namespace weft::comm
