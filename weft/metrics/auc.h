/// Exact area under the ROC curve over all samples of all ranks, ties included, with integer
/// counts, so that its bits depend on nothing but the samples.
///
/// AUC = P(score of a positive > score of a negative) + ½ P(equal)
///     = (2·wins + ties) ÷ (2·positives·negatives).
///
/// No rank ever holds all samples. Every rank
///   1. add()s its samples,
///   2. sums histogram() over the ranks (int64 all-reduce of kAucBins),
///   3. takes auc_splitters() of the sum: equal on all ranks, since the sum is,
///   4. exchanges partition(): the keys of range r go to rank r (all_to_all of the counts, then
///      all_to_all_v of 4 bytes per sample),
///   5. counts what it received (count_range), and
///   6. gathers the W results (all_gather of AucRange) and takes auc() of them in rank order.
/// Samples are unweighted; those of weight 0 do not take part. A score that is NaN has no place in
/// the order: samples with one are counted apart (not_numbers(), to be summed with the histogram),
/// and where any rank has one the AUC is NaN. Source: Mann and Whitney 1947.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace weft::metrics {

/// Bins of the histogram: the upper 16 bits of a key.
inline constexpr std::int64_t kAucBins = 65536;

/// An unsigned number in the order of the scores: a < b as floats exactly when key(a) < key(b).
/// −0 and +0 have one key; infinities are ordered. Throws Error(kNonFinite) for NaN.
std::uint32_t auc_key(float score);

/// Keys on their way to one rank.
struct AucCounts {
  std::int64_t positives = 0;
  std::int64_t negatives = 0;

  friend bool operator==(const AucCounts&, const AucCounts&) = default;
};

/// Keys ordered for the exchange: for each peer its positives, then its negatives.
struct AucExchange {
  std::vector<std::uint32_t> keys;
  std::vector<AucCounts> counts;  ///< [ranks]
};

/// What one rank counted in its range of keys. Trivially copyable: ranks exchange it as bytes.
struct AucRange {
  std::int64_t positives = 0;
  std::int64_t negatives = 0;
  std::uint64_t twice_wins_low = 0;  ///< 2·wins + ties inside the range, 128 bits
  std::uint64_t twice_wins_high = 0;

  friend bool operator==(const AucRange&, const AucRange&) = default;
};

static_assert(std::is_trivially_copyable_v<AucRange> && std::is_trivially_copyable_v<AucCounts>);

/// The samples of one rank: 4 bytes each. Not thread-safe.
class AucSamples {
 public:
  /// One sample; skipped where the weight is 0. A NaN score is counted and not kept. Throws
  /// Error(kData) for a label other than 0 and 1.
  void add(float score, float label, float weight);

  /// Forgets all samples, also those whose score is NaN, and keeps the memory.
  void clear();

  /// Samples that have a place in the order.
  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] AucCounts counts() const;

  /// Samples whose score is NaN.
  [[nodiscard]] std::int64_t not_numbers() const { return not_numbers_; }

  /// Forgets those that were added first, so many of each class. Cost: as many moves as are kept.
  void remove_first(const AucCounts& oldest);

  /// Samples per bin, [kAucBins].
  [[nodiscard]] std::vector<std::int64_t> histogram() const;

  /// This rank's keys cut at `splitters` (ranks − 1 of them): peer r receives the keys k with
  /// splitters[r−1] <= k < splitters[r].
  [[nodiscard]] AucExchange partition(std::span<const std::uint32_t> splitters) const;

 private:
  std::vector<std::uint32_t> positives_;
  std::vector<std::uint32_t> negatives_;
  std::int64_t not_numbers_ = 0;
};

/// ranks − 1 ascending keys that cut the merged histogram into ranges of about equal size. A bin is
/// never split: scores that agree in their upper 16 bits are counted by one rank.
std::vector<std::uint32_t> auc_splitters(std::span<const std::int64_t> histogram, int ranks);

/// Sorts and counts the keys one rank received: for each sender, its positives then its negatives,
/// as `counts` says. The order of senders does not matter. Cost: O(n log n), 4 bytes per key.
AucRange count_range(std::span<const std::uint32_t> keys, std::span<const AucCounts> counts);

/// Combines the ranges, ascending by key (that is, in rank order). Quiet NaN (null in JSON) when
/// only one class is present.
double auc(std::span<const AucRange> ranges);

/// All steps on one rank. NaN where a score is.
double auc(const AucSamples& samples);

}  // namespace weft::metrics
