/// The Loader cuts a source into global batches and hands each rank its share.
///
/// Order        positions of an epoch are cut into windows of `window` samples (the last has what
///              remains); inside each, position -> sample is a Permutation keyed by (seed, epoch,
///              window index), or the identity without shuffling. Global batch k of an epoch is the
///              next batch_size positions, the last partial batch included.
/// Ranks        rank r gets positions rank_samples(n, parts, ranks, r) of a global batch of n. So
///              the global batch, and the samples of each part, do not depend on the number of
///              ranks. A rank without samples gets a valid batch of none. With cluster_parts
///              samples are then permuted inside runs of parts (weft/data/cluster.h), each of one
///              rank: the batch is still the same on any number of ranks.
/// Resume       a loader that starts at position() gives the batches that would have followed.
///              One that starts after the end of the data throws Error(kData).
/// Threads      one own thread reads and maps ahead into a bounded ring of reused batches; next()
///              is for one caller's thread. Blocking: next() waits for the reader without spinning;
///              the destructor waits for the batch in work.
/// Errors       what the reader throws is rethrown by next(), after the batches before it.
/// Cost         a sequential source is read (not parsed) in full by every rank. Nothing is
///              allocated per batch once the batches have grown. Clustering: weft/data/cluster.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "weft/base/work_progress.h"
#include "weft/data/batch.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/spec/config.h"
#include "weft/trace/recorder.h"

namespace weft::data {

/// How far the data has been consumed, by all ranks together.
struct ReaderPosition {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;  ///< samples of that epoch

  friend bool operator==(const ReaderPosition&, const ReaderPosition&) = default;
};

/// Options of Loader. REQUIRES: 0 <= rank < ranks <= parts. Other values out of their range, and
/// ranks that cut through clustering runs, are an Error(kConfig) of its constructor.
struct LoaderOptions {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::int64_t parts = 8;          ///< P of the rule of parts, >= ranks
  std::int64_t cluster_parts = 0;  ///< c of weft/data/cluster.h; 0: samples stay where they are
  std::int64_t epochs = 1;         ///< the loader ends after epoch epochs - 1; 0 = never
  bool shuffle = true;
  std::int64_t window = 0;         ///< 0 = all (random access and known size), else 65536
  std::int64_t batch_size = 2048;  ///< samples of the global batch
  std::int64_t read_ahead = 2;     ///< batches prepared ahead, >= 1
  ReaderPosition start;
  std::int64_t first_step = 0;    ///< Batch::step of the first batch
  trace::Track* track = nullptr;  ///< gets the reader's batches; may be null

  /// What a configuration says for its training data.
  static LoaderOptions train(const spec::Config& config,
                             std::int64_t rank,
                             std::int64_t ranks,
                             std::int64_t parts);

  /// One epoch in the order of the source; never clustered.
  static LoaderOptions eval(const spec::Config& config,
                            std::int64_t rank,
                            std::int64_t ranks,
                            std::int64_t parts);
};

/// How many samples of `source` are permuted together; 0 without shuffling.
std::int64_t shuffle_window(const Source& source, const LoaderOptions& options);

/// One rank's stream of batches. It owns the source.
class Loader {
 public:
  /// Checks features and tasks against the source's columns (Error(kConfig)) and starts reading.
  Loader(std::unique_ptr<Source> source,
         const spec::Config& config,
         const Vocabularies& vocabularies,
         const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Swaps the next batch into `out`, whose memory is reused. False after the last epoch.
  bool next(Batch& out);

  /// What next_within() has found.
  enum class Next { kBatch, kEnd, kNotYet };

  /// next() that waits no longer than `limit`.
  Next next_within(Batch& out, std::chrono::milliseconds limit);

  /// What the reader does: for who waits long for a batch. It moves with every batch, with every
  /// run of samples that is skipped and, in a sequential source, with every piece of a file.
  [[nodiscard]] const WorkProgress& progress() const;

  /// After the batch last returned; options.start before the first.
  [[nodiscard]] ReaderPosition position() const;

  /// Samples of an epoch, as known with the batch last returned, the same on all ranks: of a
  /// sequential source once its end has been met; -1 before.
  [[nodiscard]] std::int64_t epoch_samples() const;

  /// The source's, for its names and its best NE. Not to be read from.
  [[nodiscard]] const Source& source() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::data
