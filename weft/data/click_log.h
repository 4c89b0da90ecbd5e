/// Private to data/: the generator behind data/synthetic.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/data/source.h"
#include "weft/data/teacher.h"
#include "weft/data/zipf.h"
#include "weft/spec/config.h"

namespace weft::data {

class ClickLog {
 public:
  ClickLog(const spec::SyntheticConfig& config, std::uint64_t seed);

  [[nodiscard]] const Schema& schema() const { return schema_; }

  /// Returns a hash of all that decides a sample of a given number: the configuration without its
  /// numbers of samples, and the seed.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

  /// Fills the selected columns of `out` with samples `first + ids[i]` of the stream.
  void read(std::int64_t first,
            std::span<const std::int64_t> ids,
            const ColumnSelection& selection,
            RawBlock& out);

  /// p of samples [first, first + count) of the stream, in order.
  void probabilities(std::int64_t first, std::int64_t count, std::vector<double>& out);

 private:
  static constexpr std::int64_t kChunk = 1024;  // samples generated together, column by column
  static constexpr std::int64_t kCalibration = 32768;

  struct Column {
    std::uint64_t key;
    Scatter scatter;
    std::uint64_t missing;  // 2^32 x probability
    std::uint64_t repeat;
    std::uint64_t min_length;
    std::uint64_t lengths;  // max_length - min_length + 1
    bool weighted;
  };

  // What is drawn once per sample.
  struct Sample {
    std::uint64_t stream;   // root of the columns' streams
    std::uint64_t visitor;  // the same of the visitor
    double label_draw;      // uniform in [0, 1)
    double score;
    std::array<float, Teacher::kHidden> hidden;  // of the first column of a pair
  };

  // logit = bias + slope x score
  struct Calibration {
    double bias = 0.0;
    double slope = 0.0;
  };

  // The law is the same for all logs of a fingerprint, so ranks of a process read one: of 856
  // columns it takes some 20 MB and 0.2 s.
  struct Law {
    Law(const spec::SyntheticConfig& config, std::uint64_t seed);

    std::vector<ZipfSampler> popularity;
    Teacher teacher;
    Calibration calibration;
  };

  void draw_samples(std::int64_t first,
                    std::span<const std::int64_t> ids,
                    std::span<Sample> samples);
  void add_categorical(std::size_t index, std::span<Sample> samples, RawBlock::Bags* out) const;
  float draw_bag(std::size_t index,
                 WordStream& words,
                 std::array<float, Teacher::kHidden>& hidden,
                 RawBlock::Bags* out) const;
  void add_dense(std::size_t index, std::span<Sample> samples, float* out) const;
  void score(std::int64_t first, std::int64_t count, std::vector<double>& out);
  void find_or_make_law(std::uint64_t seed);
  [[nodiscard]] Calibration calibrate();
  [[nodiscard]] double probability(double score) const;
  static double probability(const Calibration& calibration, double score);

  spec::SyntheticConfig config_;
  std::uint64_t fingerprint_;
  Schema schema_;
  std::uint64_t sample_key_;
  std::uint64_t visitor_key_;
  ZipfSampler visitors_;
  std::vector<Column> columns_;
  std::vector<std::uint64_t> dense_keys_;
  std::shared_ptr<const Law> law_;
  std::vector<Sample> chunk_;
};

}  // namespace weft::data
