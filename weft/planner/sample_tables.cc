#include "weft/planner/sample_tables.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

constexpr double kLog2Of200 = 7.643856189774724;
constexpr double kLog2Of1e5 = 16.609640474436812;

constexpr std::size_t kProductionTables = 856;
constexpr double kProductionIds = 13535.0;
constexpr double kLongest = 200.0;
constexpr double kLengthStep = 64.0;  ///< mean lengths are multiples of 1/64

struct Dims {
  std::int64_t dim;
  int tables;
};

constexpr std::array<Dims, 7> kProductionDims = {
    {{16, 69}, {32, 128}, {64, 223}, {96, 154}, {128, 180}, {192, 59}, {256, 43}}};

/// Thousandths of all ids, by reuse class.
constexpr std::array<int, 17> kReuseShares = {69, 44, 68, 101, 121, 104, 73, 58, 52,
                                              50, 49, 48, 48,  43,  31,  23, 19};

constexpr std::array<std::int64_t, 26> kKaggleRows = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};

constexpr std::array<std::int64_t, 26> kMlperfRows = {
    40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
    40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
    14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36};

constexpr std::array<std::int64_t, 26> kMlperfLengths = {
    3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};

/// 2^x for x >= 0: a product of roots of 2, each a correctly rounded square root.
double exp2_exact(double x) {
  constexpr int kBits = 30;
  const double whole = std::floor(x);
  double part = x - whole;
  double root = 2.0;
  double result = 1.0;
  for (int bit = 0; bit < kBits; ++bit) {
    root = std::sqrt(root);
    part *= 2.0;
    if (part >= 1.0) {
      part -= 1.0;
      result *= root;
    }
  }
  return std::ldexp(result, static_cast<int>(whole));
}

/// Uniform numbers of one set, by purpose and index.
class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view set)
      : key_(random_key(seed, RandomPurpose::kSynthetic, set)) {}

  [[nodiscard]] double unit(std::uint64_t purpose, std::size_t i) const {
    const std::array<std::uint32_t, 4> words = philox(key_, i, purpose);
    return uniform_double(words[0], words[1]);
  }

  [[nodiscard]] std::int64_t whole(std::uint64_t purpose,
                                   std::size_t i,
                                   std::int64_t low,
                                   std::int64_t high) const {
    return low + static_cast<std::int64_t>(unit(purpose, i) * static_cast<double>(high - low + 1));
  }

  [[nodiscard]] Permutation permutation(std::size_t n, std::uint64_t purpose) const {
    return {n, key_ + purpose};
  }

 private:
  std::uint64_t key_;
};

/// Lengths whose sum is exact: drawn, scaled until the clamped ones add up, rounded down, and what
/// is then missing dealt out in steps.
std::vector<double> production_lengths(const Draws& draws) {
  std::vector<double> drawn;
  for (std::size_t i = 0; i < kProductionTables; ++i) {
    const double u = draws.unit(1, i);
    drawn.push_back(exp2_exact(u * u * u * kLog2Of200));
  }
  std::vector<double> lengths(drawn.size());
  const auto scaled = [&](double scale) {
    double sum = 0.0;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const double length = std::clamp(drawn[i] * scale, 1.0, kLongest);
      lengths[i] = std::floor(length * kLengthStep) / kLengthStep;
      sum += lengths[i];
    }
    return sum;
  };
  double low = 0.0;
  double high = kLongest;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (scaled(middle) <= kProductionIds ? low : high) = middle;
  }
  double missing = kProductionIds - scaled(low);
  for (std::size_t i = 0; missing > 0.0; i = (i + 1) % lengths.size()) {
    if (lengths[i] < kLongest) {
      lengths[i] += 1.0 / kLengthStep;
      missing -= 1.0 / kLengthStep;
    }
  }
  return lengths;
}

/// Deals classes, the highest first, to the tables with the most ids per row.
void deal_reuse_classes(std::vector<TableUse>& tables) {
  std::vector<std::size_t> order(tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto ids_per_row = [&](std::size_t i) {
    return tables[i].mean_length / static_cast<double>(tables[i].rows);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids_per_row(a) > ids_per_row(b); });
  std::size_t reuse = kReuseShares.size() - 1;
  double given = 0.0;
  double wanted = kProductionIds * kReuseShares[reuse] / 1000.0;
  for (const std::size_t i : order) {
    while (given + 0.5 * tables[i].mean_length > wanted && reuse > 0) {
      --reuse;
      wanted += kProductionIds * kReuseShares[reuse] / 1000.0;
    }
    given += tables[i].mean_length;
    tables[i].reuse_class = static_cast<std::int64_t>(reuse);
    tables[i].zipf = static_cast<double>(12 + reuse) / 20.0;
  }
}

std::vector<TableUse> fixed_set(std::span<const std::int64_t> rows,
                                std::span<const std::int64_t> lengths,
                                std::int64_t dim,
                                int first) {
  std::vector<TableUse> tables;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t length = lengths.empty() ? 1 : lengths[i];
    tables.push_back({.name = fmt::format("C{}", first + static_cast<int>(i)),
                      .rows = rows[i],
                      .dim = dim,
                      .mean_length = static_cast<double>(length),
                      .max_length = length,
                      .reuse_class = -1});
  }
  return tables;
}

bool all_alike(const TableUse& use) {
  return use.mean_length == static_cast<double>(use.max_length);
}

}  // namespace

std::vector<TableUse> production_tables(std::uint64_t seed) {
  const Draws draws(seed, "planner.production");
  std::vector<std::int64_t> dims;
  for (const Dims& d : kProductionDims) {
    dims.insert(dims.end(), static_cast<std::size_t>(d.tables), d.dim);
  }
  const Permutation deal = draws.permutation(dims.size(), 2);
  const std::vector<double> lengths = production_lengths(draws);
  std::vector<TableUse> tables;
  for (std::size_t i = 0; i < kProductionTables; ++i) {
    const double rows = 1e3 * exp2_exact(draws.unit(3, i) * kLog2Of1e5);
    tables.push_back({.name = fmt::format("t{}", i),
                      .rows = static_cast<std::int64_t>(rows),
                      .dim = dims[deal(i)],
                      .mean_length = lengths[i],
                      .max_length = static_cast<std::int64_t>(std::ceil(4.0 * lengths[i]))});
  }
  deal_reuse_classes(tables);
  return tables;
}

std::vector<TableUse> criteo_kaggle_tables() {
  return fixed_set(kKaggleRows, {}, 16, 1);
}

std::vector<TableUse> mlperf_dcnv2_tables() {
  return fixed_set(kMlperfRows, kMlperfLengths, 128, 0);
}

std::vector<TableUse> adversarial_tables(std::uint64_t seed) {
  const Draws draws(seed, "planner.adversarial");
  std::vector<TableUse> made;
  const auto add = [&](std::int64_t rows, std::int64_t dim, std::int64_t length, double zipf) {
    made.push_back({.name = {},
                    .rows = rows,
                    .dim = dim,
                    .mean_length = static_cast<double>(length),
                    .max_length = length,
                    .zipf = zipf,
                    .reuse_class = -1});
  };
  const auto rows = [&](std::size_t i, std::int64_t low, std::int64_t high) {
    return draws.whole(1, i, low, high);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    add(rows(i, 800'000'000, 1'200'000'000), 128, 1, 0.6);
  }
  for (std::size_t i = 4; i < 52; ++i) {
    add(rows(i, 1'000, 10'000), 16, draws.whole(2, i, 60, 140), 1.2);
  }
  // Steps 75, 75, 74, 74, .., 38, and 38 three times.
  for (std::int64_t i = 0; i < 75; ++i) {
    const auto index = static_cast<std::size_t>(52 + i);
    add(rows(index, 1'000'000, 4'000'000), 64, std::max<std::int64_t>(75 - i / 2, 38), 1.05);
  }
  for (std::size_t i = 127; i < 255; ++i) {
    add(2'000'000, 64, 10, 1.05);
  }
  add(1'000'000, 128, static_cast<std::int64_t>(totals(made).ids_per_sample) / 4, 1.4);
  const Permutation order = draws.permutation(made.size(), 3);
  std::vector<TableUse> tables(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    tables[i] = made[order(i)];
    tables[i].name = fmt::format("t{}", i);
  }
  return tables;
}

TableTotals totals(std::span<const TableUse> tables) {
  TableTotals sum{.tables = static_cast<std::int64_t>(tables.size())};
  std::int64_t dims = 0;
  for (const TableUse& use : tables) {
    sum.rows += use.rows;
    sum.parameters += use.rows * use.dim;
    sum.ids_per_sample += use.mean_length;
    dims += use.dim;
  }
  sum.mean_dim =
      tables.empty() ? 0.0 : static_cast<double>(dims) / static_cast<double>(tables.size());
  return sum;
}

spec::Table to_table(const TableUse& use) {
  spec::Table table;
  table.name = use.name;
  table.num_embeddings = use.rows;
  table.embedding_dim = use.dim;
  return table;
}

spec::SparseFeature to_feature(const TableUse& use) {
  spec::SparseFeature feature;
  feature.name = use.name;
  feature.table = use.name;
  feature.max_length = use.max_length;
  return feature;
}

spec::SyntheticColumn to_column(const TableUse& use) {
  spec::SyntheticColumn column;
  column.name = use.name;
  column.cardinality = use.rows;
  column.zipf = use.zipf;
  column.max_length =
      all_alike(use) ? use.max_length : static_cast<std::int64_t>(2.0 * use.mean_length + 0.5) - 1;
  column.min_length = all_alike(use) ? use.max_length : 1;
  return column;
}

spec::Config to_config(std::span<const TableUse> tables) {
  spec::Config config;
  config.batch_size = 65'536;
  config.data.synthetic.dense_columns = 13;
  for (int i = 1; i <= 13; ++i) {
    spec::DenseFeature& feature = config.dense_features.emplace_back();
    feature.name = feature.column = fmt::format("d{}", i);
  }
  for (const TableUse& use : tables) {
    config.data.synthetic.columns.push_back(to_column(use));
    config.sparse_features.push_back(to_feature(use));
    config.tables.push_back(to_table(use));
  }
  config.model = {.type = spec::ModelKind::kDeepFm,
                  .bottom_mlp = {512, 64},
                  .top_mlp = {512, 256},
                  .projection_dim = 64};
  for (spec::SparseFeature& feature : config.sparse_features) {
    feature.column = feature.name;
    feature.mapping = spec::IdMapping::kIdentity;
  }
  spec::validate(config);
  return config;
}

std::vector<TableUse> table_set(const std::string& name) {
  const std::size_t colon = name.find(':');
  const std::string set = name.substr(0, colon);
  std::uint64_t seed = 1;
  if (colon != std::string::npos) {
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + colon + 1, end, seed);
    if (error != std::errc() || last != end) {
      fail(ErrorCode::kUsage, "'{}': behind the colon comes a seed, a whole number", name);
    }
  }
  if (set == "production") {
    return production_tables(seed);
  }
  if (set == "adversarial") {
    return adversarial_tables(seed);
  }
  if (colon == std::string::npos && set == "criteo_kaggle") {
    return criteo_kaggle_tables();
  }
  if (colon == std::string::npos && set == "mlperf_dcnv2") {
    return mlperf_dcnv2_tables();
  }
  fail(ErrorCode::kUsage,
       "there is no set of tables '{}'; there are production[:SEED], adversarial[:SEED], "
       "criteo_kaggle and mlperf_dcnv2",
       name);
}

}  // namespace weft::planner
