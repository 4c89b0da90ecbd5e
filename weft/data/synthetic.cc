#include "weft/data/synthetic.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/click_log.h"

namespace weft::data {
namespace {

constexpr std::int64_t kBayesSamples = std::int64_t{1} << 20;

double entropy(double p) {
  return p <= 0.0 || p >= 1.0 ? 0.0 : -p * std::log(p) - (1.0 - p) * std::log1p(-p);
}

class SyntheticSource final : public Source {
 public:
  SyntheticSource(const spec::DataConfig& config, std::uint64_t seed, Split split)
      : log_(config.synthetic, seed),
        selection_(ColumnSelection::all(log_.schema())),
        split_(split),
        first_(split == Split::kTrain ? 0 : config.synthetic.samples),
        size_(split == Split::kTrain ? config.synthetic.samples : config.synthetic.eval_samples),
        stream_(hash_combine(log_.fingerprint(), static_cast<std::uint64_t>(first_))) {
    const std::int64_t most = split == Split::kTrain ? config.max_samples : config.max_eval_samples;
    if (most > 0) {
      size_ = std::min(size_, most);
    }
  }

  [[nodiscard]] const Schema& schema() const override { return log_.schema(); }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("synthetic {} ({} samples, {} categorical and {} dense columns)",
                       to_string(split_), size_, schema().categorical.size(),
                       schema().dense.size());
  }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::clamp<std::int64_t>(size_ - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    for (const std::int64_t id : sample_ids) {
      WEFT_CHECK(id >= 0 && id < size_, "sample {} of {}", id, size_);
    }
    log_.read(first_, sample_ids, selection_, out);
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema(), columns);
  }

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    return hash_combine(stream_, static_cast<std::uint64_t>(size_));
  }

  /// One file whatever their number: more samples are the same ones, and others after them.
  [[nodiscard]] std::vector<FileContent> content(std::int64_t /*most*/) const override {
    return {{"the generated log", 0, stream_}};
  }

  [[nodiscard]] std::optional<double> bayes_ne() const override {
    if (!bayes_ne_ && size_ > 0) {
      bayes_ne_ = compute_bayes_ne();
    }
    return bayes_ne_;
  }

 private:
  [[nodiscard]] double compute_bayes_ne() const {
    const std::int64_t samples = std::min(size_, kBayesSamples);
    double entropies = 0.0;
    double clicks = 0.0;
    std::vector<double> probabilities;
    constexpr std::int64_t kPiece = 65536;
    for (std::int64_t begin = 0; begin < samples; begin += kPiece) {
      log_.probabilities(first_ + begin, std::min(kPiece, samples - begin), probabilities);
      for (const double p : probabilities) {
        entropies += entropy(p);
        clicks += p;
      }
    }
    const double n = static_cast<double>(samples);
    return entropies / (n * entropy(clicks / n));
  }

  mutable ClickLog log_;  // its scratch memory changes in bayes_ne()
  ColumnSelection selection_;
  Split split_;
  std::int64_t first_;
  std::int64_t size_;
  std::uint64_t stream_;  ///< of what decides sample i of this part
  mutable std::optional<double> bayes_ne_;
};

}  // namespace

std::unique_ptr<Source> open_synthetic(const spec::DataConfig& config,
                                       std::uint64_t seed,
                                       Split split) {
  return std::make_unique<SyntheticSource>(config, seed, split);
}

}  // namespace weft::data
