// Which library multiplies fastest? The products of the dense layers of both models, with operands
// that come from memory, in slices of several sizes: forward, gradients of inputs, gradients of
// weights. Libraries take turns product by product, by the CPU time of one thread; results are
// compared before anything is measured.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/arguments.h"
#include "bench/product_library.h"
#include "bench/report.h"
#include "bench/step_work.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

struct Options {
  std::vector<std::string> models = {"bench/dlrm_kaggle.yaml", "bench/dcnv2_mlperf.yaml"};
  std::vector<std::int64_t> slices = {64, 128, 256, 512};
  std::string onednn3;
  std::string out;
  int rounds = 5;
  double cold_mib = 96.0;  // more than a core finds in its caches
  bool quick = false;
  bool by_layer = false;
};

constexpr const char* kPasses[] = {"forward", "inputs", "weights"};

using Libraries = std::vector<std::unique_ptr<ProductLibrary>>;

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Operands of one product, as many times as it takes to find them in memory.
class Operands {
 public:
  Operands(const LayerProduct& p, double bytes) {
    const std::int64_t x = p.samples * p.in;
    const std::int64_t dy = p.samples * p.out;
    const std::int64_t w = p.out * p.in;
    const std::int64_t result = p.result_floats();
    const std::int64_t stride = (x + dy + w + result + 64 + 15) / 16 * 16;
    const auto copies =
        std::max<std::int64_t>(1, std::llround(bytes / (4.0 * static_cast<double>(stride))));
    auto* memory = memory_.at_least_of<float>(copies * stride);
    for (std::int64_t i = 0; i < copies * stride; ++i) {
      memory[i] = static_cast<float>(mix64(static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24F - 0.5F;
    }
    const auto line = [](std::int64_t floats) { return (floats + 15) / 16 * 16; };
    for (std::int64_t i = 0; i < copies; ++i, memory += stride) {
      float* const to_dy = memory + line(x);
      float* const to_w = to_dy + line(dy);
      list_.push_back({memory, to_dy, to_w, to_w + line(w)});
    }
  }

  [[nodiscard]] std::span<const ProductOperands> list() const { return list_; }

 private:
  HostBlock memory_;
  std::vector<ProductOperands> list_;
};

/// Throws where libraries disagree by more than sums of so many terms may.
void compare(const LayerProduct& p,
             const Operands& operands,
             PreparedProduct& product,
             const std::string& name,
             std::vector<float>& expected) {
  const std::int64_t count = p.result_floats();
  float* const result = operands.list()[0].result;
  std::fill_n(result, count, NAN);
  product.run(0);
  if (expected.empty()) {
    expected.assign(result, result + count);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float other = expected[static_cast<std::size_t>(i)];
    if (!(std::abs(result[i] - other) <= 1e-3F * std::max(1.0F, std::abs(other)))) {
      fail(ErrorCode::kInternal, "{}: {} of {} samples, {} to {}: value {} is {}, expected {}",
           name, kPasses[static_cast<int>(p.pass)], p.samples, p.in, p.out, i, result[i], other);
    }
  }
}

/// Sums over layers, one per round.
struct Total {
  double flops = 0.0;
  std::vector<double> seconds;
};

using Key = std::map<std::string, std::string>;

void measure(const LayerProduct& p,
             const Options& options,
             const Libraries& libraries,
             const std::vector<Total*>& totals) {
  const Operands operands(p, options.quick ? 0.0 : options.cold_mib * 0x1p20);
  std::vector<std::unique_ptr<PreparedProduct>> prepared;
  std::vector<float> expected;
  for (const auto& library : libraries) {
    prepared.push_back(library->prepare(p, operands.list()));
    compare(p, operands, *prepared.back(), library->name(), expected);
  }
  const std::size_t copies = operands.list().size();
  for (std::size_t round = 0; round < static_cast<std::size_t>(options.rounds); ++round) {
    for (std::size_t l = 0; l < libraries.size(); ++l) {
      const double start = cpu_seconds();
      for (std::size_t i = 0; i < copies; ++i) {
        prepared[l]->run(i);
      }
      const double seconds = (cpu_seconds() - start) / static_cast<double>(copies);
      for (const std::size_t of : {2 * l, 2 * l + 1}) {
        totals[of]->seconds.resize(static_cast<std::size_t>(options.rounds));
        totals[of]->seconds[round] += seconds;
      }
    }
  }
  for (Total* const total : totals) {
    total->flops += p.flops();
  }
}

/// A layer's product from the benchmark's description of it.
LayerProduct layer_product(const DenseProduct& product, std::int64_t samples) {
  const GemmShape& shape = product.shape;
  if (product.pass == "forward") {
    return {ProductPass::kForward, samples, shape.k, shape.n};
  }
  if (product.pass == "data") {
    return {ProductPass::kInputs, samples, shape.n, shape.k};
  }
  return {ProductPass::kWeights, samples, shape.n, shape.m};
}

std::string model_name(const std::string& path) {
  const std::size_t begin = path.rfind('/') + 1;  // npos + 1 is 0
  return path.substr(begin, path.rfind('.') - begin);
}

void run(const Options& options) {
  Libraries libraries;
  const auto add = [&](std::unique_ptr<ProductLibrary> library, const std::string& missing) {
    if (library != nullptr) {
      libraries.push_back(std::move(library));
    } else {
      fmt::print("left out: {}\n", missing);
    }
  };
  std::string why;
  add(onednn_products(), "oneDNN");
  auto newer = onednn3_products(options.onednn3, why);
  add(std::move(newer), "oneDNN 3: " + why);
  add(own_products(), "Weft");
  add(xsmm_products(), "libxsmm: this build was made without it");
  std::map<Key, Total> totals;
  for (const std::string& path : options.models) {
    const spec::Config config = spec::load_config(path, {});
    for (const std::int64_t samples : options.slices) {
      for (const DenseProduct& product : dense_products(config, samples)) {
        const LayerProduct p = layer_product(product, samples);
        std::vector<Total*> to;
        for (const auto& library : libraries) {
          Key key = {{"model", model_name(path)},
                     {"slice", std::to_string(samples)},
                     {"pass", kPasses[static_cast<int>(p.pass)]},
                     {"library", library->name()}};
          to.push_back(&totals[key]);
          key["layer"] = fmt::format("{} ({} to {})", product.layer, p.in, p.out);
          to.push_back(&totals[key]);
        }
        measure(p, options, libraries, to);
      }
    }
  }
  std::vector<Figure> figures;
  for (const auto& [key, total] : totals) {
    if (key.contains("layer") && !options.by_layer) {
      continue;
    }
    Figure figure{.name = "products",
                  .parameters = key,
                  .unit = "GFLOP/s",
                  .better = Better::kHigher,
                  .values = {},
                  .limit = {}};
    for (const double seconds : total.seconds) {
      figure.values.push_back(1e-9 * total.flops / seconds);
    }
    figures.push_back(std::move(figure));
  }
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "products", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  if (const char* const path = std::getenv("WEFT_ONEDNN3")) {
    options.onednn3 = path;
  }
  weft::bench::Arguments arguments(
      "Compares libraries of matrix products on those of the models' dense layers");
  arguments.add("models", options.models, "Configurations");
  arguments.add("--slices", options.slices, "Samples of a slice");
  arguments.add("--onednn3", options.onednn3,
                "The file libdnnl.so.3; otherwise what WEFT_ONEDNN3 names");
  arguments.add("--cold-mib", options.cold_mib, "Bytes of operands gone through in turn");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add_flag("--by-layer", options.by_layer, "Report every layer, too");
  arguments.add_flag("--quick", options.quick, "Only show that everything runs");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (options.quick) {
    options.models = {"bench/dlrm_kaggle.yaml"};
    options.slices = {64};
    options.rounds = 1;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "products_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
