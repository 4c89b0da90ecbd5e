/// The manifest of a checkpoint as plain values, and its text form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/checkpoint/stored_rows.h"
#include "weft/tensor/dtype.h"

namespace weft::checkpoint {

/// The formats this build reads: version 2 has blocks of every n-th row, version 3 the job and the
/// identity of the data, version 4 rows in segments, and cuts as rules. It writes version 4 for
/// every job, and the lowest that has what it needs for a manifest without one.
inline constexpr std::int64_t kFirstVersion = 1;
inline constexpr std::int64_t kRowStepVersion = 2;
inline constexpr std::int64_t kJobVersion = 3;
inline constexpr std::int64_t kFormatVersion = 4;

/// Where a checkpoint stands in its job. A line is the chain of parents of a checkpoint.
struct Lineage {
  std::uint64_t job_id = 0;      ///< random, made at step 0, kept on resume; 0 = not known (1, 2)
  std::int64_t save_number = 0;  ///< the parent's plus one; the first of a job has 1
  std::string parent_name;       ///< of its directory, for messages; empty = none
  std::uint64_t parent_id = 0;   ///< manifest_id() of the parent; 0 = none

  friend bool operator==(const Lineage&, const Lineage&) = default;
};

/// What a job was trained on, so that a resume finds out whether it goes on with the same data.
/// Paths, names and times do not count.
struct DataIdentity {
  /// One file of the training data.
  struct File {
    std::int64_t bytes = 0;         ///< 0 where the data are no files
    std::uint64_t fingerprint = 0;  ///< of its content, as far as it was looked at

    friend bool operator==(const File&, const File&) = default;
  };

  std::string format;            ///< data.format
  std::vector<File> files;       ///< in the order in which they are read
  std::int64_t max_samples = 0;  ///< data.max_samples; 0 = all
  std::int64_t samples = -1;     ///< of an epoch of training; -1 = its end has not been met
  std::int64_t window = 0;       ///< samples permuted together; 0 = read in order
  std::uint64_t shuffle_seed = 0;

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// What a job wants to find again, besides its matrices.
struct Metadata {
  std::string weft_version;
  std::int64_t step = 0;       ///< steps done
  std::int64_t epoch = 0;      ///< reader position: epoch,
  std::int64_t sample = 0;     ///< and samples of it consumed by all ranks
  std::int64_t ranks = 1;      ///< that wrote it
  std::int64_t parts = 8;      ///< numerics.parts, resolved: kept on resume
  std::int64_t row_draws = 1;  ///< numerics.row_draws likewise; 1 of manifests that do not say
  std::string target;          ///< instruction set the job ran with
  std::string config_yaml;     ///< resolved configuration
  std::string plan_yaml;       ///< who held what
  std::uint64_t config_hash = 0;
  std::uint64_t plan_hash = 0;
  std::optional<DataIdentity> data = {};  ///< none before version 3
  std::string extra_json = "{}";          ///< text of a JSON object, for whatever else
  Lineage lineage = {};                   ///< filled in by save()

  friend bool operator==(const Metadata&, const Metadata&) = default;
};

/// A file of the checkpoint's directory that holds blocks, one after the other without gaps.
struct DataFile {
  std::string name;  ///< "rank-0000.bin"
  std::int64_t bytes = 0;

  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// A small named file, e.g. the vocabularies.
struct BlobFile {
  std::string name;
  std::string file;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3 of all of it

  friend bool operator==(const BlobFile&, const BlobFile&) = default;
};

/// A block of an item: rows x columns, row after row, cut into chunks of whole rows.
struct StoredBlock {
  std::int64_t file = 0;    ///< index into Manifest::files
  std::int64_t offset = 0;  ///< bytes
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
  std::int64_t chunk_rows = 0;           ///< rows per chunk; the last chunk has what remains
  std::vector<std::uint64_t> checksums;  ///< XXH3 of each chunk
  std::int64_t row_step = 1;             ///< rows row_begin, row_begin + row_step, ... are stored

  [[nodiscard]] RowSet rows() const { return {row_begin, row_end, row_step}; }

  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

/// One logical matrix; its blocks cover it exactly once.
struct StoredItem {
  std::string parameter;
  std::string kind;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<StoredBlock> blocks;

  friend bool operator==(const StoredItem&, const StoredItem&) = default;
};

/// The content of manifest.json, but for its version and seal.
struct Manifest {
  Metadata metadata;
  std::vector<DataFile> files;
  std::vector<BlobFile> blobs;
  std::vector<StoredItem> items;
  std::vector<StoredTable> tables = {};   ///< whose rows are in segments; none before version 4
  std::vector<RowLayout> layouts = {};    ///< who wrote which of them
  std::vector<SegmentSet> segments = {};  ///< in order: rows of a later one hold

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The text of manifest.json, sealed. Throws Error(kCheckpoint) where the text cannot be made
/// (extra_json is not an object, a string is not UTF-8).
std::string manifest_to_json(const Manifest& manifest);

/// Reads and validates everything that can be checked without the other files: the seal, the
/// version, every field's type and range, blocks that lie in their files and matrices, that cover
/// each matrix exactly once and each file without gap or overlap. Throws Error(kCheckpoint) naming
/// `file`, the field or item, and what to do. Safe for any input.
Manifest manifest_from_json(const std::string& text, const std::string& file);

/// The checksum that closes a manifest's text: no two checkpoints have one. Throws
/// Error(kCheckpoint) where the seal is missing or broken.
std::uint64_t manifest_id(const std::string& text, const std::string& file);

/// Closes JSON text that ends in "}" with the member "checksum", the XXH3 of all that stands before
/// it, so that no byte of a manifest can change unnoticed.
std::string seal_json(std::string body);

/// Bytes of a chunk are at most this, unless one row is larger.
inline constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;

/// Messages name items like this: tables.C1 weight.
std::string item_name(const std::string& parameter, const std::string& kind);

}  // namespace weft::checkpoint
