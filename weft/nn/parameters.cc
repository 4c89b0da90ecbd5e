#include "weft/nn/parameters.h"

#include <algorithm>
#include <cmath>

#include "weft/base/philox.h"
#include "weft/kernels/loss.h"

namespace weft::nn {

namespace {

// ln(s) for s in (0, 1), from s = m 2^e with m in [1/2, 1): ln(2 m) + (e - 1) ln 2.
double exact_log(double s) {
  constexpr double kLn2 = 0.6931471805599453;
  int exponent = 0;
  const double mantissa = std::frexp(s, &exponent);
  return kernels::exact_log1p(2.0 * mantissa - 1.0) + (exponent - 1) * kLn2;
}

// A standard normal number by Marsaglia's polar method: it needs ln and sqrt only, both of which
// have the same bits on every machine. A rejected attempt (21 in 100) counts up in the counter.
double normal(std::uint64_t key, std::uint64_t index) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    const auto words = philox(key, index, attempt);
    const double u = 2.0 * uniform_double(words[0], words[1]) - 1.0;
    const double v = 2.0 * uniform_double(words[2], words[3]) - 1.0;
    const double s = u * u + v * v;
    if (s > 0.0 && s < 1.0) {
      return u * std::sqrt(-2.0 * exact_log(s) / s);
    }
  }
}

}  // namespace

Parameters::Parameters(const std::vector<layout::LinearLayer>& layers) {
  const auto add = [this](const std::string& name, std::int64_t rows, std::int64_t cols,
                          Init init) {
    inits.push_back(init);
    return layout[layout.add(name, rows, cols)].offset;
  };
  for (const layout::LinearLayer& layer : layers) {
    LayerPlace place;
    place.weight = add(layer.name + ".weight", layer.shape.out, layer.shape.in, Init::kWeight);
    if (layer.bias != layout::Bias::kNone) {
      place.bias = add(layer.name + ".bias", 1, layer.shape.out,
                       layer.bias == layout::Bias::kZero ? Init::kZero : Init::kBias);
    }
    places.push_back(place);
  }
}

void initial_values(std::uint64_t seed,
                    const optim::DenseParameter& parameter,
                    Init init,
                    float* values) {
  if (init == Init::kZero) {
    std::fill_n(values, parameter.size(), 0.0F);
    return;
  }
  // A weight is [out, in]; a bias [1, out].
  const auto out = static_cast<double>(init == Init::kWeight ? parameter.rows : parameter.cols);
  const double variance =
      init == Init::kWeight ? 2.0 / (static_cast<double>(parameter.cols) + out) : 1.0 / out;
  const double deviation = std::sqrt(variance);
  const std::uint64_t key = random_key(seed, RandomPurpose::kInitialValue, parameter.name);
  for (std::int64_t i = 0; i < parameter.size(); ++i) {
    values[i] = static_cast<float>(deviation * normal(key, static_cast<std::uint64_t>(i)));
  }
}

}  // namespace weft::nn
