#include "weft/data/click_log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/philox.h"

namespace weft::data {
namespace {

constexpr double kVisitorSkew = 0.6;
constexpr double kDenseMissing = 0.05;
constexpr double kCountLogMean = 1.0;  // a dense column is floor(exp(kCountLogMean + normal))
constexpr int kQuantileBits = 12;

std::uint64_t to_threshold(double probability) {
  return static_cast<std::uint64_t>(std::llround(probability * kTwo32));
}

// The standard normal quantile of p, by bisection of the distribution function.
double normal_quantile(double p) {
  double low = -10.0;
  double high = 10.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

// Counts of a dense column by the upper bits of its random word, and ln(1 + count) of each.
struct Quantiles {
  std::vector<float> counts;
  std::vector<float> log_counts;
};

Quantiles make_quantiles() {
  constexpr int kQuantiles = 1 << kQuantileBits;
  Quantiles out;
  for (int i = 0; i < kQuantiles; ++i) {
    const double quantile = normal_quantile((i + 0.5) / kQuantiles);
    out.counts.push_back(static_cast<float>(std::floor(std::exp(kCountLogMean + quantile))));
    out.log_counts.push_back(std::log1p(out.counts.back()));
  }
  return out;
}

// The same for every log.
const Quantiles& quantiles() {
  static const Quantiles made = make_quantiles();
  return made;
}

// Hash of all that decides a sample of a given number.
std::uint64_t fingerprint_of(const spec::SyntheticConfig& config, std::uint64_t seed) {
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  std::uint64_t hash = mix64(seed);
  for (const std::uint64_t word : {number(config.dense_columns), number(config.visitors),
                                   bits(config.base_rate), bits(config.signal)}) {
    hash = hash_combine(hash, word);
  }
  for (const spec::SyntheticColumn& column : config.columns) {
    for (const std::uint64_t word :
         {hash_string(column.name), number(column.cardinality), bits(column.zipf),
          number(column.min_length), number(column.max_length), bits(column.missing),
          bits(column.repeat), bits(column.teacher_scale), std::uint64_t{column.weighted}}) {
      hash = hash_combine(hash, word);
    }
  }
  return hash;
}

std::vector<ZipfSampler> make_popularity(const spec::SyntheticConfig& config) {
  std::vector<ZipfSampler> popularity;
  for (const spec::SyntheticColumn& column : config.columns) {
    popularity.emplace_back(column.cardinality, column.zipf);
  }
  return popularity;
}

static_assert(spec::SyntheticConfig::kMaxIds <= ZipfSampler::kMaxRanks);

// The configuration's ranges again, for callers that did not come through spec::validate: a table
// built from a wild value would take the process down.
const spec::SyntheticConfig& checked(const spec::SyntheticConfig& config) {
  for (const spec::SyntheticColumn& column : config.columns) {
    const auto require = [&](bool good, const char* key, double value, const char* range) {
      if (!good) {
        fail(ErrorCode::kConfig,
             "data.synthetic: column '{}' cannot be generated with {} = {}; it must be {}",
             column.name, key, value, range);
      }
    };
    require(column.cardinality >= 1 && column.cardinality <= config.kMaxIds, "cardinality",
            static_cast<double>(column.cardinality), "in [1, 2^36]");
    require(column.zipf >= 0.0 && column.zipf <= 16.0, "zipf", column.zipf, "in [0, 16]");
    require(column.min_length >= 0, "min_length", static_cast<double>(column.min_length),
            "at least 0");
    require(column.max_length >= column.min_length && column.max_length <= config.kMaxLength,
            "max_length", static_cast<double>(column.max_length), "in [min_length, 65536]");
    require(column.missing >= 0.0 && column.missing <= 1.0, "missing", column.missing, "in [0, 1]");
    require(column.repeat >= 0.0 && column.repeat <= 1.0, "repeat", column.repeat, "in [0, 1]");
    require(std::isfinite(column.teacher_scale), "teacher_scale", column.teacher_scale, "finite");
  }
  const auto require = [](bool good, const char* key, double value, const char* range) {
    if (!good) {
      fail(ErrorCode::kConfig, "data.synthetic.{} = {}; it must be {}", key, value, range);
    }
  };
  require(config.samples >= 0, "samples", static_cast<double>(config.samples), "at least 0");
  require(config.eval_samples >= 0, "eval_samples", static_cast<double>(config.eval_samples),
          "at least 0");
  require(config.dense_columns >= 0 && config.dense_columns <= 65536, "dense_columns",
          static_cast<double>(config.dense_columns), "in [0, 65536]");
  require(config.visitors >= 1 && config.visitors <= config.kMaxIds, "visitors",
          static_cast<double>(config.visitors), "in [1, 2^36]");
  require(config.base_rate > 0.0 && config.base_rate < 1.0, "base_rate", config.base_rate,
          "between 0 and 1");
  require(config.signal >= 0.0 && config.signal <= config.kMaxSignal, "signal", config.signal,
          "in [0, 100]");
  return config;
}

}  // namespace

ClickLog::Law::Law(const spec::SyntheticConfig& config, std::uint64_t seed)
    : popularity(make_popularity(config)), teacher(config, popularity, seed) {
}

ClickLog::ClickLog(const spec::SyntheticConfig& config, std::uint64_t seed)
    : config_(checked(config)),
      fingerprint_(fingerprint_of(config, seed)),
      sample_key_(random_key(seed, RandomPurpose::kSynthetic, "sample")),
      visitor_key_(random_key(seed, RandomPurpose::kSynthetic, "visitor")),
      visitors_(config.visitors, kVisitorSkew) {
  for (const spec::SyntheticColumn& column : config.columns) {
    const std::uint64_t key = random_key(seed, RandomPurpose::kSynthetic, "column/" + column.name);
    columns_.push_back({key, Scatter(static_cast<std::uint64_t>(column.cardinality), mix64(key)),
                        to_threshold(column.missing), to_threshold(column.repeat),
                        static_cast<std::uint64_t>(column.min_length),
                        static_cast<std::uint64_t>(column.max_length - column.min_length + 1),
                        column.weighted});
    schema_.categorical.push_back({column.name, column.max_length > 1, column.weighted});
  }
  for (std::int64_t i = 1; i <= config.dense_columns; ++i) {
    schema_.dense.push_back("d" + std::to_string(i));
    dense_keys_.push_back(
        random_key(seed, RandomPurpose::kSynthetic, "dense/" + schema_.dense.back()));
  }
  schema_.labels = {"label"};
  chunk_.resize(kChunk);
  find_or_make_law(seed);
}

void ClickLog::read(std::int64_t first,
                    std::span<const std::int64_t> ids,
                    const ColumnSelection& selection,
                    RawBlock& out) {
  out.reset(schema_);
  out.size = static_cast<std::int64_t>(ids.size());
  out.sample_ids.assign(ids.begin(), ids.end());
  const bool labels = selection.labels[0] != 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += kChunk) {
    const std::size_t n = std::min<std::size_t>(kChunk, ids.size() - begin);
    const std::span<Sample> samples = std::span(chunk_).first(n);
    draw_samples(first, ids.subspan(begin, n), samples);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      RawBlock::Bags* bags = selection.categorical[i] != 0 ? &out.categorical[i] : nullptr;
      if (bags != nullptr && bags->offsets.empty()) {
        bags->offsets.reserve(ids.size() + 1);
        bags->offsets.push_back(0);
      }
      if (bags != nullptr || labels) {
        add_categorical(i, samples, bags);
      }
    }
    for (std::size_t i = 0; i < dense_keys_.size(); ++i) {
      if (selection.dense[i] != 0) {
        out.dense[i].resize(ids.size());
      }
      if (selection.dense[i] != 0 || labels) {
        add_dense(i, samples, selection.dense[i] != 0 ? &out.dense[i][begin] : nullptr);
      }
    }
    for (std::size_t i = 0; labels && i < n; ++i) {
      const double p = probability(samples[i].score);
      out.labels[0].push_back(samples[i].label_draw < p ? 1.0F : 0.0F);
    }
  }
  for (std::size_t i = 0; ids.empty() && i < columns_.size(); ++i) {
    if (selection.categorical[i] != 0) {
      out.categorical[i].offsets.assign(1, 0);
    }
  }
}

void ClickLog::draw_samples(std::int64_t first,
                            std::span<const std::int64_t> ids,
                            std::span<Sample> samples) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto words = philox(sample_key_, static_cast<std::uint64_t>(first + ids[i]), 0);
    Sample& sample = samples[i];
    sample.stream = (static_cast<std::uint64_t>(words[0]) << 32) | words[1];
    sample.score = 0.0;
    WordStream rest((static_cast<std::uint64_t>(words[2]) << 32) | words[3]);
    sample.label_draw = static_cast<double>(rest.next() >> 11) * 0x1.0p-53;
    sample.visitor = mix64(visitor_key_ + visitors_(rest));
  }
}

// Draws the column's bags, adds them to `out` unless null, and adds what the teacher makes of them.
void ClickLog::add_categorical(std::size_t index,
                               std::span<Sample> samples,
                               RawBlock::Bags* out) const {
  const Column& column = columns_[index];
  const bool paired = law_->teacher.paired(index);
  for (Sample& sample : samples) {
    WordStream words(mix64(sample.stream ^ column.key));
    const std::uint64_t choice = words.next();
    std::array<float, Teacher::kHidden> hidden = {};
    if ((choice & 0xffffffffU) >= column.missing) {
      if ((choice >> 32) < column.repeat) {
        words = WordStream(mix64(sample.visitor ^ column.key));
      }
      sample.score += static_cast<double>(draw_bag(index, words, hidden, out));
    }
    if (paired && index % 2 == 1) {
      float product = 0.0F;
      for (std::size_t k = 0; k < hidden.size(); ++k) {
        product += sample.hidden[k] * hidden[k];
      }
      sample.score += static_cast<double>(product);
    } else if (paired) {
      sample.hidden = hidden;
    }
    if (out != nullptr) {
      out->offsets.push_back(static_cast<std::int64_t>(out->ids.size()));
    }
  }
}

// Draws one bag. Returns the mean of its effects and sets `hidden` to the mean of its vectors, both
// weighted where the column is. A weighted column has the same ids as one that is not.
float ClickLog::draw_bag(std::size_t index,
                         WordStream& words,
                         std::array<float, Teacher::kHidden>& hidden,
                         RawBlock::Bags* out) const {
  const Column& column = columns_[index];
  const ZipfSampler& popularity = law_->popularity[index];
  const Teacher& teacher = law_->teacher;
  std::uint64_t length = column.min_length;
  WordStream weights(0);
  if (column.lengths > 1 || column.weighted) {
    const std::uint64_t word = words.next();
    length += ((word >> 32) * column.lengths) >> 32;
    weights = WordStream(mix64(word));
  }
  float effect = 0.0F;
  for (std::uint64_t j = 0; j < length; ++j) {
    const std::uint64_t rank = popularity(words);
    const float weight =
        column.weighted ? 0.5F + uniform_float(static_cast<std::uint32_t>(weights.next())) : 1.0F;
    effect += weight * teacher.effect(index, rank);
    if (const float* vector = teacher.hidden(index, rank)) {
      for (std::size_t k = 0; k < hidden.size(); ++k) {
        hidden[k] += weight * vector[k];
      }
    }
    if (out != nullptr) {
      out->ids.push_back(static_cast<std::int64_t>(column.scatter(rank)));
      if (column.weighted) {
        out->weights.push_back(weight);
      }
    }
  }
  const float share = length > 0 ? 1.0F / static_cast<float>(length) : 0.0F;
  for (float& value : hidden) {
    value *= share;
  }
  return effect * share;
}

void ClickLog::add_dense(std::size_t index, std::span<Sample> samples, float* out) const {
  const Quantiles& of = quantiles();
  const float weight = law_->teacher.dense_weight(index);
  const std::uint64_t missing = to_threshold(kDenseMissing);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint64_t word = mix64(samples[i].stream ^ dense_keys_[index]);
    const std::size_t quantile = word >> (64 - kQuantileBits);
    const bool is_missing = (word & 0xffffffffU) < missing;
    if (!is_missing) {
      samples[i].score += static_cast<double>(weight * of.log_counts[quantile]);
    }
    if (out != nullptr) {
      out[i] = is_missing ? std::numeric_limits<float>::quiet_NaN() : of.counts[quantile];
    }
  }
}

void ClickLog::score(std::int64_t first, std::int64_t count, std::vector<double>& out) {
  out.clear();
  out.reserve(static_cast<std::size_t>(count));
  std::vector<std::int64_t> ids(kChunk);
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const auto n = static_cast<std::size_t>(std::min(kChunk, count - begin));
    for (std::size_t i = 0; i < n; ++i) {
      ids[i] = begin + static_cast<std::int64_t>(i);
    }
    const std::span<Sample> samples = std::span(chunk_).first(n);
    draw_samples(first, std::span(ids).first(n), samples);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      add_categorical(i, samples, nullptr);
    }
    for (std::size_t i = 0; i < dense_keys_.size(); ++i) {
      add_dense(i, samples, nullptr);
    }
    for (const Sample& sample : samples) {
      out.push_back(sample.score);
    }
  }
}

void ClickLog::probabilities(std::int64_t first, std::int64_t count, std::vector<double>& out) {
  score(first, count, out);
  for (double& value : out) {
    value = probability(value);
  }
}

double ClickLog::probability(double score) const {
  return probability(law_->calibration, score);
}

double ClickLog::probability(const Calibration& calibration, double score) {
  return 1.0 / (1.0 + std::exp(-(calibration.bias + calibration.slope * score)));
}

// Deviation of the logit = signal, mean of p = base_rate (by bisection). Some ten milliseconds.
ClickLog::Calibration ClickLog::calibrate() {
  std::vector<double> scores;
  score(0, kCalibration, scores);
  const double n = static_cast<double>(scores.size());
  double mean = 0.0;
  for (const double value : scores) {
    mean += value / n;
  }
  double variance = 0.0;
  for (const double value : scores) {
    variance += (value - mean) * (value - mean) / n;
  }
  // A constant score has a deviation of rounding errors only.
  const double deviation = std::sqrt(variance);
  Calibration out;
  out.slope = deviation > 1e-9 ? config_.signal / deviation : 0.0;
  double low = -1000.0;
  double high = 1000.0;
  for (int i = 0; i < 50; ++i) {
    const double middle = 0.5 * (low + high);
    out.bias = middle - out.slope * mean;
    double clicks = 0.0;
    for (const double value : scores) {
      clicks += probability(out, value);
    }
    (clicks / n < config_.base_rate ? low : high) = middle;
  }
  return out;
}

// The first log of a fingerprint makes the law, while others of the process wait; it is forgotten
// with the last. It is a pure function of what the fingerprint covers, so no result depends on what
// is known.
void ClickLog::find_or_make_law(std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::uint64_t, std::weak_ptr<const Law>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<const Law>& found = known[fingerprint_];
  law_ = found.lock();
  if (law_ == nullptr) {
    const auto made = std::make_shared<Law>(config_, seed);
    law_ = made;
    made->calibration = calibrate();
    found = made;
  }
}

}  // namespace weft::data
