/// What the data of a source are, apart from paths, names and times. Ranks compare it before step
/// 0, and checkpoints keep it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/base/work_progress.h"

namespace weft::data {

/// The content of one file, as far as it was looked at.
struct FileContent {
  std::string name;  ///< for messages; not part of what is compared
  std::int64_t bytes = 0;
  std::uint64_t fingerprint = 0;
};

/// Files whose format has no checksum of its own are looked at in places of this many bytes.
inline constexpr std::int64_t kPlaceBytes = std::int64_t{64} << 10;

/// Places of one look at the training data, and of one at the evaluation data. A job looks at its
/// training data twice at most: at all files, and at those that a checkpoint knows.
inline constexpr std::int64_t kTrainPlaces = 24;
inline constexpr std::int64_t kEvalPlaces = 16;
static_assert(2 * kTrainPlaces + kEvalPlaces <= 64, "a job looks at 64 places at most");

/// A run of bytes of a file.
struct Place {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Where a file of `bytes` bytes is looked at: `places` places at most, by ascending begin, a
/// function of the two numbers. Whole where that is enough for all of it, else the beginning, the
/// end and places between that a hash draws (one place alone is drawn).
std::vector<Place> choose_places(std::int64_t bytes, std::int64_t places);

/// Looks at `files`, which share `places` evenly; with more files than places, at some of them.
/// The size of every file counts. Blocking; reads 64 KiB per place. Throws Error(kIo) naming a
/// file that cannot be read, Error(kData) for one that becomes shorter meanwhile. `progress` moves
/// with every file and place; it may be null.
std::vector<FileContent> sample_files(std::span<const std::string> files,
                                      std::int64_t places,
                                      WorkProgress* progress = nullptr);

/// One number for all of `files`, in their order.
std::uint64_t fingerprint_of(std::span<const FileContent> files);

}  // namespace weft::data
