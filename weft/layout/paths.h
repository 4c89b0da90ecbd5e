/// Which path the vectors of a table take between shards and samples, and what they take room for
/// on their way. weft/sharding/paths has a class for each path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/spec/plan.h"

namespace weft::layout {

/// How a slot is asked for, served, assembled and updated.
enum class Path : std::uint8_t {
  kInPlace,     ///< whole bags that a rank serves itself: nothing travels
  kWholeBags,   ///< whole bags of a feature to each of its shards
  kSplitBags,   ///< each id to the cut of rows that has it; bags are added at the sample
  kUniqueRows,  ///< rows of a fetched table, each once; bags are added at the sample
  kHotRows,     ///< the cut of rows that every rank has a copy of
};

inline constexpr std::size_t kNumPaths = 5;

/// The path of a table's slots, but for its hot rows, between different ranks. Without shards:
/// kWholeBags.
Path path_of(const spec::TablePlan& plan);

/// Vectors of a slot for the samples of one rank. Of hot rows the path is that of the other cuts.
struct PathBlock {
  Path path = Path::kWholeBags;
  bool own = false;       ///< the samples are of the rank that has the slot
  bool sequence = false;  ///< a vector per id, or per row

  /// The path that they take: whole bags that a rank has itself stay in place.
  [[nodiscard]] constexpr Path taken() const {
    return path == Path::kWholeBags && own ? Path::kInPlace : path;
  }

  /// Whether vectors pass through the exchange's buffers; else they are in the matrix at once.
  [[nodiscard]] constexpr bool moves_vectors() const { return taken() != Path::kInPlace; }

  /// Whether gradients do; else they are read in the matrix.
  [[nodiscard]] constexpr bool moves_gradients() const {
    return moves_vectors() && !(path == Path::kSplitBags && own && !sequence);
  }

  /// Whether a sample gets several vectors of a bag, to be added.
  [[nodiscard]] constexpr bool gets_partial_sums() const {
    return path == Path::kSplitBags && !sequence;
  }
};

}  // namespace weft::layout
