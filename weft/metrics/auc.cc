#include "weft/metrics/auc.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "weft/base/error.h"

namespace weft::metrics {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kBinShift = 16;

Wide twice_wins(const AucRange& range) {
  return (static_cast<Wide>(range.twice_wins_high) << 64) | range.twice_wins_low;
}

void set_twice_wins(AucRange& range, Wide value) {
  range.twice_wins_low = static_cast<std::uint64_t>(value);
  range.twice_wins_high = static_cast<std::uint64_t>(value >> 64);
}

Wide product(std::int64_t a, std::int64_t b) {
  return static_cast<Wide>(static_cast<std::uint64_t>(a)) * static_cast<std::uint64_t>(b);
}

std::size_t peer_of(std::span<const std::uint32_t> splitters, std::uint32_t key) {
  return static_cast<std::size_t>(std::upper_bound(splitters.begin(), splitters.end(), key) -
                                  splitters.begin());
}

/// Length of the run of `key` that starts at `at`.
std::size_t run_length(const std::vector<std::uint32_t>& sorted,
                       std::size_t at,
                       std::uint32_t key) {
  const std::size_t begin = at;
  while (at < sorted.size() && sorted[at] == key) {
    ++at;
  }
  return at - begin;
}

}  // namespace

std::uint32_t auc_key(float score) {
  if (std::isnan(score)) {
    fail(ErrorCode::kNonFinite,
         "AUC of a score that is NaN: the model's output is not a number, find out why before "
         "trusting any figure");
  }
  // Adding +0 turns −0 into +0. Negative floats order downwards as bits, so they are inverted;
  // the others get the sign bit set to stand above them.
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

void AucSamples::add(float score, float label, float weight) {
  if (!(weight > 0.0F)) {
    return;
  }
  if (label != 0.0F && label != 1.0F) {
    fail(ErrorCode::kData, "AUC of a label of {}: labels must be 0 or 1", label);
  }
  if (std::isnan(score)) {
    ++not_numbers_;
    return;
  }
  (label == 1.0F ? positives_ : negatives_).push_back(auc_key(score));
}

void AucSamples::clear() {
  positives_.clear();
  negatives_.clear();
  not_numbers_ = 0;
}

AucCounts AucSamples::counts() const {
  return {.positives = static_cast<std::int64_t>(positives_.size()),
          .negatives = static_cast<std::int64_t>(negatives_.size())};
}

void AucSamples::remove_first(const AucCounts& oldest) {
  const AucCounts all = counts();
  WEFT_CHECK(oldest.positives <= all.positives && oldest.negatives <= all.negatives,
             "{} and {} samples to remove of {} and {}", oldest.positives, oldest.negatives,
             all.positives, all.negatives);
  positives_.erase(positives_.begin(), positives_.begin() + oldest.positives);
  negatives_.erase(negatives_.begin(), negatives_.begin() + oldest.negatives);
}

std::int64_t AucSamples::size() const {
  return static_cast<std::int64_t>(positives_.size() + negatives_.size());
}

std::vector<std::int64_t> AucSamples::histogram() const {
  std::vector<std::int64_t> bins(static_cast<std::size_t>(kAucBins));
  for (const auto* keys : {&positives_, &negatives_}) {
    for (const std::uint32_t key : *keys) {
      ++bins[key >> kBinShift];
    }
  }
  return bins;
}

AucExchange AucSamples::partition(std::span<const std::uint32_t> splitters) const {
  const std::size_t ranks = splitters.size() + 1;
  AucExchange out;
  out.counts.resize(ranks);
  for (const std::uint32_t key : positives_) {
    ++out.counts[peer_of(splitters, key)].positives;
  }
  for (const std::uint32_t key : negatives_) {
    ++out.counts[peer_of(splitters, key)].negatives;
  }
  // Where the next positive and the next negative of each peer go.
  std::vector<std::size_t> positive_at(ranks);
  std::vector<std::size_t> negative_at(ranks);
  std::size_t next = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    positive_at[r] = next;
    next += static_cast<std::size_t>(out.counts[r].positives);
    negative_at[r] = next;
    next += static_cast<std::size_t>(out.counts[r].negatives);
  }
  out.keys.resize(next);
  for (const std::uint32_t key : positives_) {
    out.keys[positive_at[peer_of(splitters, key)]++] = key;
  }
  for (const std::uint32_t key : negatives_) {
    out.keys[negative_at[peer_of(splitters, key)]++] = key;
  }
  return out;
}

std::vector<std::uint32_t> auc_splitters(std::span<const std::int64_t> histogram, int ranks) {
  WEFT_CHECK(static_cast<std::int64_t>(histogram.size()) == kAucBins && ranks >= 1,
             "{} bins, {} ranks", histogram.size(), ranks);
  std::int64_t total = 0;
  for (const std::int64_t count : histogram) {
    total += count;
  }
  std::vector<std::uint32_t> splitters;
  splitters.reserve(static_cast<std::size_t>(ranks) - 1);
  std::size_t bin = 0;
  std::int64_t below = 0;  // samples in bins [0, bin)
  for (std::int64_t r = 1; r < ranks; ++r) {
    // ⌊r·total/ranks⌋ without overflow.
    const std::int64_t wanted = total / ranks * r + total % ranks * r / ranks;
    // Stop where half of the next bin would already be too much.
    while (bin + 1 < histogram.size() && below + (histogram[bin] + 1) / 2 <= wanted) {
      below += histogram[bin];
      ++bin;
    }
    splitters.push_back(static_cast<std::uint32_t>(bin) << kBinShift);
  }
  return splitters;
}

AucRange count_range(std::span<const std::uint32_t> keys, std::span<const AucCounts> counts) {
  std::vector<std::uint32_t> positives;
  std::vector<std::uint32_t> negatives;
  auto next = keys.begin();
  for (const AucCounts& sender : counts) {
    WEFT_CHECK(sender.positives >= 0 && sender.negatives >= 0 &&
                   keys.end() - next >= sender.positives + sender.negatives,
               "counts of more than {} keys", keys.size());
    positives.insert(positives.end(), next, next + sender.positives);
    next += sender.positives;
    negatives.insert(negatives.end(), next, next + sender.negatives);
    next += sender.negatives;
  }
  WEFT_CHECK(next == keys.end(), "{} keys left over", keys.end() - next);
  std::sort(positives.begin(), positives.end());
  std::sort(negatives.begin(), negatives.end());

  // Walk the distinct keys of the positives upwards; `below` negatives are smaller.
  Wide twice = 0;
  std::size_t below = 0;
  for (std::size_t i = 0; i < positives.size();) {
    const std::uint32_t key = positives[i];
    while (below < negatives.size() && negatives[below] < key) {
      ++below;
    }
    const std::size_t equal_positives = run_length(positives, i, key);
    const std::size_t equal_negatives = run_length(negatives, below, key);
    twice += static_cast<Wide>(equal_positives) * (2 * static_cast<Wide>(below) + equal_negatives);
    i += equal_positives;
  }
  AucRange range;
  range.positives = static_cast<std::int64_t>(positives.size());
  range.negatives = static_cast<std::int64_t>(negatives.size());
  set_twice_wins(range, twice);
  return range;
}

double auc(std::span<const AucRange> ranges) {
  Wide twice = 0;
  std::int64_t positives = 0;
  std::int64_t negatives = 0;  // of the ranges so far, all smaller than what follows
  for (const AucRange& range : ranges) {
    twice += twice_wins(range) + 2 * product(range.positives, negatives);
    positives += range.positives;
    negatives += range.negatives;
  }
  if (positives == 0 || negatives == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(twice) / static_cast<double>(2 * product(positives, negatives));
}

double auc(const AucSamples& samples) {
  if (samples.not_numbers() > 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const AucExchange all = samples.partition({});
  const AucRange range = count_range(all.keys, all.counts);
  return auc(std::span(&range, 1));
}

}  // namespace weft::metrics
