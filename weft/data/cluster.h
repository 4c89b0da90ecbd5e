/// Key-centric clustering of a batch: inside runs of neighbouring parts, samples that read the same
/// rows are put into the same part. A row that the samples of one part read has one partial
/// gradient; one that several parts read has one for each maximal subtree of parts.
///
/// Notation   P parts, c parts of a run: the k-th is [kc, min((k + 1)c, P)), so where c does not
///            divide P the last run is shorter. Of a run: n samples, N ids. A key is a row of a
///            table, whichever feature reads it; one that a single sample of the run reads, however
///            often, counts for nothing.
/// Rule       The parts of a run are filled in their order, each to the size that the rule of parts
///            gives it: by the sample whose keys the part has the largest share of already, then
///            the next. The share is counted as keys that the part has times ⌊2^30 / keys of the
///            sample⌋, in integers; of equal ones the sample at the lowest position is taken. The
///            first sample of a part is the one that the last part with samples would have taken
///            next, so that a user's samples which a part has no room for begin the next.
///            Inside a part samples keep the order of their positions.
/// Promise    Where the samples of a run go is a function of the rows of these samples in the order
///            of their positions, and of c and P: not of other runs, ranks, threads or timing.
///            Sums over samples are added in another order than without, so bits differ from those.
/// Pays       where samples share rows beyond those that all samples read: several of one user or
///            session in one run. Without such, next to nothing is gained
///            (docs/pipeline_cluster.md).
/// Cost       O(N) looks into a hash table, at most c N additions, n (n / 64 + 64) comparisons, and
///            one copy of the batch. Memory: one batch more, and of the largest run 8 bytes per id,
///            up to 90 per key, 28 per sample. Nothing is allocated once the largest batch has been
///            seen.
/// Source     the idea: NestPipe (arXiv 2604.06956), which leaves open how samples are chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/data/batch.h"
#include "weft/spec/config.h"

namespace weft::data {

/// Which parts are clustered together.
struct ClusterRuns {
  std::int64_t parts = 8;          ///< P
  std::int64_t cluster_parts = 2;  ///< c, >= 1
  Range own;                       ///< parts of the batches: whole runs
};

/// Permutes batches; what it keeps between them is memory alone. One thread.
class SampleClusterer {
 public:
  /// Rows are those of the tables that `config` has features read.
  /// REQUIRES: runs.own is of whole runs (spec::check_cluster_parts()).
  SampleClusterer(const spec::Config& config, const ClusterRuns& runs);

  /// Permutes all that `batch` has of each sample. REQUIRES: its features are the configuration's,
  /// its positions those of the parts runs.own.
  void cluster(Batch& batch);

 private:
  struct HashSlot {
    std::int64_t key = 0;
    std::int32_t index = 0;
    std::uint32_t run = 0;  ///< that wrote it; others are free
  };

  void find_order(const Batch& batch);
  void find_keys(const Batch& batch, Range samples);
  std::int32_t index_of(std::int64_t key);
  [[nodiscard]] std::size_t first_slot(std::int64_t key) const;
  void grow_table();
  void begin_run();
  void list_samples_of_keys();
  void drop_unshared_keys();
  void fill_parts(const Batch& batch, Range parts, Range samples);
  void fill_part(std::int32_t part, std::int64_t size);
  void forget_shares();
  [[nodiscard]] std::int64_t best_sample() const;
  void take(std::int64_t sample, std::int32_t part);
  void raise_shares(std::size_t key);
  void set_block(std::size_t block);
  void apply_order(Batch& batch);
  void permute_bags(KeyedJaggedTensor& sparse);

  ClusterRuns runs_;
  std::vector<std::int64_t> first_keys_;  // [F] key of row 0 of the feature's table

  // Of a run. Samples and keys are numbered from 0.
  int table_bits_ = 6;
  std::vector<HashSlot> table_;  // 2^table_bits_ of them, at most half in use
  std::uint32_t run_ = 0;
  std::vector<std::int64_t> keys_;           // [K]
  std::vector<std::int32_t> key_counts_;     // [K] samples that have it; then those in no part
  std::vector<std::int32_t> key_marks_;      // [K] the last sample, then the last part, that had it
  std::vector<std::int64_t> key_begins_;     // [K + 1] of key_samples_
  std::vector<std::int32_t> key_samples_;    // samples of each key
  std::vector<std::int64_t> sample_begins_;  // [n + 1] of sample_keys_
  std::vector<std::int32_t> sample_keys_;    // keys of each sample
  std::vector<std::int32_t> units_;          // [n] what a key adds to a sample's share
  std::vector<std::int32_t> shares_;         // [n] -1: the sample is in a part
  std::vector<std::int32_t> block_shares_;   // [n / 64] the largest of each 64 samples
  std::vector<std::int32_t> sample_parts_;   // [n]
  std::vector<std::int64_t> next_;           // [parts of the run] where the next sample goes

  // Of a batch.
  std::vector<std::int64_t> order_;  // [B] the sample that comes to each place
  Batch spare_;                      // what becomes the batch
};

}  // namespace weft::data
