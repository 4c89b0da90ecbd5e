/// A Source is one dataset as it lies on disk (or is generated): named columns of raw samples, ids
/// before hashing or vocabulary. Sample ids are 0, 1, .. in the order of the files.
///
/// Threads      not thread-safe but for concurrent_reads(); each rank, and each loader, has its
///              own.
/// Determinism  a sample's contents depend on its id only.
/// Errors       Error(kData) naming file:line (or file and block), column, value and what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/base/work_progress.h"
#include "weft/data/content.h"
#include "weft/spec/config.h"

namespace weft::data {

/// Which samples of a configuration's data.
enum class Split { kTrain, kEval };

/// "train" or "eval".
std::string_view to_string(Split split);

/// The columns of a source. Names are unique over all three kinds.
struct Schema {
  /// One column of ids.
  struct Categorical {
    std::string name;
    bool multi_valued = false;  ///< a sample may have more than one id
    bool weighted = false;      ///< every id has a weight

    friend bool operator==(const Categorical&, const Categorical&) = default;
  };

  std::vector<std::string> dense;  ///< float columns; sample weights are here too
  std::vector<Categorical> categorical;
  std::vector<std::string> labels;

  /// Index of a column of that kind, -1 where there is none of that name.
  [[nodiscard]] std::int64_t dense_index(std::string_view name) const;
  [[nodiscard]] std::int64_t categorical_index(std::string_view name) const;
  [[nodiscard]] std::int64_t label_index(std::string_view name) const;

  friend bool operator==(const Schema&, const Schema&) = default;
};

/// Columnar raw samples. Columns that were not selected are left empty. Vectors keep their capacity
/// from block to block.
struct RawBlock {
  /// Ids of sample s: ids[offsets[s] .. offsets[s + 1]).
  struct Bags {
    std::vector<std::int64_t> offsets;  ///< [size + 1], from 0
    std::vector<std::int64_t> ids;
    std::vector<float> weights;  ///< [ids] where the column is weighted, else empty
  };

  std::int64_t size = 0;
  std::vector<std::int64_t> sample_ids;    ///< [size]
  std::vector<std::vector<float>> dense;   ///< [columns][size], NaN = missing
  std::vector<Bags> categorical;           ///< [columns]
  std::vector<std::vector<float>> labels;  ///< [columns][size]

  /// No samples, no columns' contents; one (empty) entry per column of `schema`.
  void reset(const Schema& schema);
};

/// Which columns of a schema are decoded. All by default.
struct ColumnSelection {
  std::vector<char> dense, categorical, labels;  ///< [columns], nonzero = decoded

  /// Everything.
  static ColumnSelection all(const Schema& schema);

  /// The named columns. Throws Error(kConfig) naming an unknown one and the nearest known.
  static ColumnSelection of(const Schema& schema, std::span<const std::string> columns);
};

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  /// Returns all columns, selected or not; a reference into this source.
  [[nodiscard]] virtual const Schema& schema() const = 0;

  /// For logs and messages, e.g. "criteo train.txt (1 file)".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Makes samples [first, first + count) readable and returns how many of them exist: fewer than
  /// `count` only where the data ends. `first` never goes below that of an earlier call, except to
  /// 0, which rewinds. A sequential source holds the range in memory, undecoded, and reads what it
  /// skips. Blocking.
  virtual std::int64_t load(std::int64_t first, std::int64_t count) = 0;

  /// Called where an epoch begins, but for the first: looks whether files are still those that were
  /// opened. A warning names one that was replaced or written to; what it shows from then on is
  /// verified anew. Throws Error(kData) for one that has become shorter.
  virtual void begin_epoch() {}

  /// Decodes the selected columns of samples inside the loaded range, in any order, into `out`
  /// (reset first); out.sample_ids is `sample_ids`.
  virtual void read(std::span<const std::int64_t> sample_ids, RawBlock& out) = 0;

  /// Only these columns (dense, categorical or labels) are decoded from now on.
  virtual void select(std::span<const std::string> columns) = 0;

  /// From now on load() may spread its work over `pool`, which must live until it is taken back by
  /// a null pointer. Results are the same.
  virtual void use(ThreadPool* /*pool*/) {}

  /// From now on load() moves `progress`, which must live until it is taken back by a null pointer,
  /// whenever bytes have come. Where load() costs nothing it is not used.
  virtual void report_to(WorkProgress* /*progress*/) {}

  /// Several threads may call read() at once, each with a block of its own, between two loads.
  [[nodiscard]] virtual bool concurrent_reads() const { return false; }

  /// load() costs nothing, whatever the range.
  [[nodiscard]] virtual bool random_access() const = 0;

  /// Number of samples; -1 where it is not known before all is read.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// One number for the contents and sizes of the files, not for their names and times; ranks
  /// compare it. Reads them at kEvalPlaces places at most. Blocking; throws as sample_files().
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;

  /// The content of the first `most` files, as if there were no others; of all files where there
  /// are no more. A source without files, or whose samples depend on all files together, is one
  /// file. Reads at kTrainPlaces places at most. Blocking; throws as sample_files().
  [[nodiscard]] virtual std::vector<FileContent> content(std::int64_t /*most*/) const {
    return {{describe(), 0, fingerprint()}};
  }

  /// Synthetic data: the best expected NE over these samples.
  [[nodiscard]] virtual std::optional<double> bayes_ne() const { return std::nullopt; }
};

/// A source's use of a pool for the life of this object.
class PoolUse {
 public:
  PoolUse(Source& source, ThreadPool& pool) : source_(source) { source.use(&pool); }

  ~PoolUse() { source_.use(nullptr); }

  PoolUse(const PoolUse&) = delete;
  PoolUse& operator=(const PoolUse&) = delete;

 private:
  Source& source_;
};

/// A source's reports to `progress` for the life of this object.
class ProgressUse {
 public:
  ProgressUse(Source& source, WorkProgress& progress) : source_(source) {
    source.report_to(&progress);
  }

  ~ProgressUse() { source_.report_to(nullptr); }

  ProgressUse(const ProgressUse&) = delete;
  ProgressUse& operator=(const ProgressUse&) = delete;

 private:
  Source& source_;
};

/// Samples [first, first + count) of another source, as a source; count -1 = to the end.
class SubrangeSource final : public Source {
 public:
  SubrangeSource(std::unique_ptr<Source> inner, std::int64_t first, std::int64_t count);

  [[nodiscard]] const Schema& schema() const override;
  [[nodiscard]] std::string describe() const override;
  std::int64_t load(std::int64_t first, std::int64_t count) override;
  void begin_epoch() override;
  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override;
  void select(std::span<const std::string> columns) override;
  void use(ThreadPool* pool) override;
  void report_to(WorkProgress* progress) override;
  [[nodiscard]] bool concurrent_reads() const override;
  [[nodiscard]] bool random_access() const override;
  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] std::uint64_t fingerprint() const override;
  [[nodiscard]] std::vector<FileContent> content(std::int64_t most) const override;
  [[nodiscard]] std::optional<double> bayes_ne() const override;

 private:
  std::unique_ptr<Source> inner_;
  std::int64_t first_;
  std::int64_t count_;
  std::vector<std::int64_t> inner_ids_;
};

/// Opens the data of a configuration: dispatches on data.format and applies data.max_samples
/// (kTrain) or data.max_eval_samples (kEval). kEval is data.eval_path, else the last
/// data.eval_fraction of data.path (formats with random access), else null: there is no evaluation
/// data. movielens splits by time whatever these say; synthetic generates both.
/// Throws Error(kData) for a missing or empty file and a glob without match, Error(kConfig) where
/// the split cannot be made.
std::unique_ptr<Source> open_source(const spec::Config& config, Split split);

/// The regular files that `patterns` (files or globs, * ? [..] in the file name) name: in the given
/// order, matches of a glob sorted by name. Throws Error(kData) for a missing file, a folder, an
/// empty file, a glob without match, a folder that may not be read, and where there is no pattern
/// at all; `what` says which key.
std::vector<std::string> expand_paths(std::span<const std::string> patterns, std::string_view what);

}  // namespace weft::data
