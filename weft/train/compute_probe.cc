#include "weft/train/compute_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/cost/dense.h"
#include "weft/cost/tables.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/interaction.h"
#include "weft/kernels/linear.h"
#include "weft/kernels/sparse_update.h"
#include "weft/tensor/buffer.h"
#include "weft/train/timing.h"

namespace weft::train {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kBag = 16;  ///< ids
constexpr std::int64_t kPassBytes = 4
                                    << 20;  ///< of rows: a few milliseconds, long beside a wake-up

/// Values that are neither zero nor denormal, which would be another speed.
void fill(ThreadPool& pool, void* data, std::int64_t floats) {
  pool.parallel_for(64, [&](std::int64_t i) {
    const Range own = piece(floats, 64, i);
    std::fill_n(static_cast<float*>(data) + own.begin, own.size(), 0.5F);
  });
}

/// One thread's product with operands of its own.
class Product {
 public:
  static constexpr std::int64_t kSamples = 256, kIn = 512, kOut = 512;
  static constexpr double kFlops = 2.0 * kSamples * kIn * kOut;

  Product(Context& ctx, DType dtype)
      : x_memory_(*ctx.device, kSamples * kIn * size_of(dtype)),
        y_memory_(*ctx.device, kSamples * kOut * size_of(dtype)),
        workspace_(kernels::make_workspace(ctx)) {
    const kernels::LinearShape shape{.in = kIn, .out = kOut};
    weights_ = kernels::make_prepared_weights(ctx, dtype, std::span(&shape, 1));
    const std::vector<float> values(kIn * kOut, 0.01F);
    const Matrix<const float> plain = matrix(values.data(), kOut, kIn);
    kernels::prepare_weights(ctx, {.weights = std::span(&plain, 1), .to = weights_.get()});
    // Small values: 0x3c00 in both halves of an fp32 and as bf16 is about 0.008.
    std::fill_n(x_memory_.as<std::uint16_t>(), x_memory_.bytes() / 2, std::uint16_t{0x3c00});
    forward_.layer = {.workspace = workspace_.get(), .weights = weights_.get(), .number = 0};
    forward_.x = operand(x_memory_, dtype, kSamples, kIn);
    forward_.y = operand(y_memory_, dtype, kSamples, kOut);
  }

  void run(Context& ctx, std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i) {
      kernels::linear_forward(ctx, forward_);
    }
  }

 private:
  static kernels::Operand operand(const Buffer& memory,
                                  DType dtype,
                                  std::int64_t rows,
                                  std::int64_t cols) {
    kernels::Operand operand;
    operand.data = memory.as<void>();
    operand.dtype = dtype;
    operand.rows = rows;
    operand.cols = operand.stride = cols;
    return operand;
  }

  Buffer x_memory_, y_memory_;
  std::unique_ptr<kernels::Workspace> workspace_;
  std::unique_ptr<kernels::PreparedWeights> weights_;
  kernels::LinearForward forward_;
};

/// One thread's dot interactions with fields of its own.
class Dots {
 public:
  static constexpr std::int64_t kSamples = 256, kFields = 16, kDim = 64;

  static double flops() {
    const cost::DotFlops one = cost::dot_flops(kFields, kDim);
    return kSamples * (one.forward + one.backward);
  }

  Dots() {
    constexpr std::int64_t kWidth = kFields * kDim;
    const Matrix<float> all{memory_.data(), kSamples, kWidth, kWidth};
    const Matrix<float> gradients{gradients_.data(), kSamples, kWidth, kWidth};
    for (std::int64_t f = 0; f < kFields; ++f) {
      fields_.push_back(all.slice_cols(f * kDim, (f + 1) * kDim));
      dfields_.push_back(gradients.slice_cols(f * kDim, (f + 1) * kDim));
    }
  }

  void run(Context& ctx) {
    constexpr std::int64_t kPairs = kFields * (kFields - 1) / 2;
    const Matrix<float> pairs{pairs_.data(), kSamples, kPairs, kPairs};
    kernels::dot_interaction_forward(ctx,
                                     {.fields = fields_, .out = pairs, .scratch = scratch_.data()});
    kernels::dot_interaction_backward(ctx, {.fields = fields_,
                                            .dout = pairs,
                                            .dfields = dfields_,
                                            .accumulate = 0,
                                            .scratch = scratch_.data()});
  }

 private:
  static constexpr auto kFloats = static_cast<std::size_t>(kSamples * kFields * kDim);
  std::vector<float> memory_ = std::vector<float>(kFloats, 0.01F);
  std::vector<float> gradients_ = std::vector<float>(kFloats);
  std::vector<float> pairs_ =
      std::vector<float>(static_cast<std::size_t>(kSamples * kernels::num_pairs(kFields)));
  std::vector<float> scratch_ =
      std::vector<float>(static_cast<std::size_t>(kernels::dot_interaction_scratch(kFields, kDim)));
  std::vector<Matrix<const float>> fields_;
  std::vector<Matrix<float>> dfields_;
};

/// Rows that have one gradient each, as a coalescer would say it.
class OneEntryRuns {
 public:
  OneEntryRuns(Device& device, std::int64_t most, std::int64_t cols)
      : gradients_(device, most * cols * kFloat) {
    fill(device.pool(), gradients_.as<float>(), most * cols);
    for (std::int64_t i = 0; i <= most; ++i) {
      places_.push_back(static_cast<std::int32_t>(i));
      addresses_.push_back(gradients_.as<float>() + i * cols);
    }
    parts_.resize(places_.size());
  }

  [[nodiscard]] std::int64_t count() const { return std::ssize(parts_) - 1; }

  /// `rows`: at most count(), ascending and distinct; used, not copied.
  [[nodiscard]] kernels::RowRuns of(const std::vector<std::int64_t>& rows) const {
    const std::int64_t count = std::ssize(rows);
    return {.num_rows = count,
            .num_segments = count,
            .num_entries = count,
            .rows = rows.data(),
            .slots = rows.data(),
            .row_segments = places_.data(),
            .segment_entries = places_.data(),
            .segment_parts = parts_.data(),
            .grads = addresses_.data()};
  }

 private:
  Buffer gradients_;
  std::vector<std::int32_t> places_;  ///< 0, 1, 2, ...
  std::vector<std::int32_t> parts_;   ///< 0
  std::vector<const float*> addresses_;
};

}  // namespace

ComputeProbe::ComputeProbe(Device& device, const ComputeProbeOptions& options)
    : device_(device),
      options_(options),
      ctx_{.device = &device, .pool = &device.pool()},
      table_(device, options.table_bytes) {
  fill(device.pool(), table_.as<float>(), options.table_bytes / kFloat);
}

double ComputeProbe::gemm_flops_per_s(DType dtype) {
  constexpr double kMostTimes = 16.0;
  const std::int64_t threads = device_.pool().threads();
  std::vector<std::unique_ptr<Product>> products;
  for (std::int64_t i = 0; i < threads; ++i) {
    products.push_back(std::make_unique<Product>(ctx_, dtype));
  }
  const auto run = [&](std::int64_t times) {
    const auto start = std::chrono::steady_clock::now();
    device_.pool().parallel_for(
        threads, [&](std::int64_t i) { products[static_cast<std::size_t>(i)]->run(ctx_, times); });
    return seconds_since(start);
  };
  run(1);  // makes the primitives
  // A pass stays inside the budget where products are slow.
  const auto times =
      static_cast<std::int64_t>(std::clamp(options_.budget_s / 2.0 / run(1), 1.0, kMostTimes));
  const double seconds = median_pass_s(options_.budget_s, [&] { run(times); });
  return static_cast<double>(threads * times) * Product::kFlops / seconds;
}

double ComputeProbe::dot_flops_per_s() {
  const std::int64_t threads = device_.pool().threads();
  std::vector<Dots> dots(static_cast<std::size_t>(threads));
  const double seconds = median_pass_s(options_.budget_s, [&] {
    device_.pool().parallel_for(
        threads, [&](std::int64_t i) { dots[static_cast<std::size_t>(i)].run(ctx_); });
  });
  return static_cast<double>(threads) * Dots::flops() / seconds;
}

double ComputeProbe::copy_bytes_per_s() {
  const std::int64_t half = table_.bytes() / 2;
  // A window that moves on, so that no pass finds the one before it in a cache.
  const std::int64_t window = std::min<std::int64_t>(half, std::int64_t{64} << 20);
  std::int64_t at = 0;
  const double seconds = median_pass_s(options_.budget_s, [&] {
    device_.pool().parallel_for(64, [&](std::int64_t i) {
      const Range own = piece(window, 64, i);
      std::byte* const from = table_.as<std::byte>() + at + own.begin;
      std::memcpy(from + half, from, static_cast<std::size_t>(own.size()));
    });
    at = at + 2 * window <= half ? at + window : 0;
  });
  return 2.0 * static_cast<double>(window) / seconds;
}

void ComputeProbe::draw(std::vector<std::int64_t>& rows,
                        std::int64_t row_bytes,
                        std::int64_t table_bytes) {
  const auto count = static_cast<std::uint64_t>(table_bytes / row_bytes);
  for (std::int64_t& row : rows) {
    row = static_cast<std::int64_t>(mix64(options_.seed + ++draws_) % count);
  }
}

double ComputeProbe::rows_of_bytes_per_s(std::int64_t row_bytes, std::int64_t table_bytes) {
  const std::int64_t cols = row_bytes / kFloat;
  const std::int64_t bags = std::max<std::int64_t>(1, kPassBytes / row_bytes / kBag);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(bags * kBag));
  std::vector<std::int64_t> offsets;
  for (std::int64_t bag = 0; bag <= bags; ++bag) {
    offsets.push_back(bag * kBag);
  }
  Buffer out(device_, bags * row_bytes);
  const kernels::BagLookup lookup{
      .weights = table_.as<void>(),
      .weight_stride = row_bytes,
      .cols = cols,
      .bags = {.ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = bags},
      .out = out.as<float>(),
      .out_stride = cols};
  const double seconds = median_pass_s(
      options_.budget_s, [&] { draw(ids, row_bytes, table_bytes); },
      [&] { kernels::embedding_bag(ctx_, std::span(&lookup, 1)); });
  return static_cast<double>(bags * kBag * row_bytes) / seconds;
}

double ComputeProbe::row_update_bytes_per_s(std::int64_t row_bytes) {
  const std::int64_t cols = row_bytes / kFloat;
  const OneEntryRuns runs(device_, kPassBytes / row_bytes, cols);
  std::vector<std::int64_t> rows;
  kernels::SparseUpdate update;
  update.table = {
      .weights = table_.as<void>(), .weight_stride = row_bytes, .cols = cols, .dim = cols};
  update.params = {.rule = SparseOptimizerKind::kSgd, .learning_rate = 1e-6F};
  double updated = 0.0;
  double passes = 0.0;
  const auto redraw = [&] {
    rows.resize(static_cast<std::size_t>(runs.count()));
    draw(rows, row_bytes, table_.bytes());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    update.runs = runs.of(rows);
    updated += static_cast<double>(rows.size());
    passes += 1.0;
  };
  const double seconds = median_pass_s(options_.budget_s, redraw, [&] { update_all(update); });
  // Some rows are drawn twice: hardly more in one pass than in another.
  return updated / passes * static_cast<double>(row_bytes) / seconds;
}

void ComputeProbe::update_all(const kernels::SparseUpdate& update) {
  kernels::update_rows(ctx_, std::span(&update, 1));
}

double ComputeProbe::draw_s() {
  constexpr std::int64_t kRows = 1024, kCols = 64, kTimes = 8;
  constexpr std::uint16_t kHalf = 0x3f00;  // 0.5 as bf16
  const OneEntryRuns runs(device_, kRows, kCols);
  Buffer weights(device_, kRows * kCols * kFloat);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < kRows; ++row) {
    rows.push_back(row);
  }
  const auto seconds = [&](DType dtype) {
    kernels::SparseUpdate update;
    update.table = {.weights = weights.as<void>(),
                    .weight_stride = kCols * size_of(dtype),
                    .dtype = dtype,
                    .cols = kCols,
                    .dim = kCols};
    update.params = {.rule = SparseOptimizerKind::kSgd, .learning_rate = 1e-6F};
    update.runs = runs.of(rows);
    return median_pass_s(options_.budget_s / 2, [&] {
      for (std::int64_t i = 0; i < kTimes; ++i) {
        update_all(update);
      }
    });
  };
  fill(device_.pool(), weights.as<float>(), kRows * kCols);
  const double plain = seconds(DType::kFloat32);
  std::fill_n(weights.as<std::uint16_t>(), kRows * kCols, kHalf);
  const double drawn = seconds(DType::kBFloat16);
  return std::max(0.0, (drawn - plain) / static_cast<double>(kTimes * kRows * kCols));
}

double ComputeProbe::sort_bytes_per_s() {
  constexpr std::int64_t kIds = std::int64_t{1} << 16, kRows = std::int64_t{1} << 18, kCols = 16;
  const std::int64_t threads = device_.pool().threads();
  const Buffer gradients(device_, kIds * kCols * kFloat);
  std::vector<std::int64_t> ids(kIds), offsets;
  for (std::int64_t i = 0; i <= kIds; ++i) {
    offsets.push_back(i);
  }
  const std::vector<std::int32_t> parts(kIds, 0);
  const kernels::GradientBlock block{
      .bags = {.ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = kIds},
      .grads = gradients.as<const float>(),
      .grad_stride = kCols,
      .parts = parts.data()};
  std::vector<kernels::RunBuffers> buffers;
  std::vector<kernels::RowRuns> runs(static_cast<std::size_t>(threads));
  buffers.reserve(runs.size());
  std::vector<kernels::CoalesceJob> jobs;
  for (kernels::RowRuns& one : runs) {
    jobs.push_back({.blocks = std::span(&block, 1),
                    .rows = kRows,
                    .parts = 1,
                    .buffers = &buffers.emplace_back(device_),
                    .runs = &one});
  }
  const double seconds = median_pass_s(
      options_.budget_s, [&] { draw(ids, 1, kRows); }, [&] { kernels::coalesce(ctx_, jobs); });
  return static_cast<double>(threads * kIds) * cost::coalesce_bytes(kRows, false) / seconds;
}

double ComputeProbe::repeat_s() {
  constexpr std::int64_t kIds = 8192, kParts = 8, kRowBytes = 64, kCols = kRowBytes / kFloat;
  const std::int64_t rows = std::min(std::int64_t{1} << 18, table_.bytes() / kRowBytes);
  Buffer gradients(device_, kIds * kRowBytes);
  fill(device_.pool(), gradients.as<float>(), kIds * kCols);
  std::vector<std::int64_t> ids(kIds), offsets;
  std::vector<std::int32_t> parts;
  for (std::int64_t i = 0; i <= kIds; ++i) {
    offsets.push_back(i);
    parts.push_back(static_cast<std::int32_t>(i * kParts / kIds));
  }
  const kernels::GradientBlock block{
      .bags = {.ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = kIds},
      .grads = gradients.as<const float>(),
      .grad_stride = kCols,
      .parts = parts.data()};
  kernels::RunBuffers buffers(device_);
  kernels::RowRuns all;
  const kernels::CoalesceJob job{.blocks = std::span(&block, 1),
                                 .rows = rows,
                                 .parts = kParts,
                                 .buffers = &buffers,
                                 .runs = &all};
  const OneEntryRuns single(device_, kIds, kCols);
  kernels::SparseUpdate update;
  update.params = {.rule = SparseOptimizerKind::kSgd, .learning_rate = 1e-6F};
  update.parts = kParts;
  std::vector<double> seconds;  // of a repeated gradient
  std::int64_t window = 0;      // of rows that no pass found before
  const auto begin = std::chrono::steady_clock::now();
  while (seconds.size() < 3 || seconds_since(begin) < options_.budget_s) {
    for (std::int64_t& id : ids) {
      const double draw = static_cast<double>(mix64(options_.seed + ++draws_) >> 11) * 0x1p-53;
      const auto rank = static_cast<std::uint64_t>(std::pow(static_cast<double>(rows), draw));
      id = static_cast<std::int64_t>(mix64(rank) % static_cast<std::uint64_t>(rows));
    }
    kernels::coalesce(ctx_, std::span(&job, 1));
    const auto of = [&](const kernels::RowRuns& runs) {
      update.runs = runs;
      update.table = {.weights = table_.as<std::byte>() + window,
                      .weight_stride = kRowBytes,
                      .cols = kCols,
                      .dim = kCols};
      window = (window + rows * kRowBytes) % (table_.bytes() - rows * kRowBytes + kRowBytes);
      window = window / kRowBytes * kRowBytes;
      const auto start = std::chrono::steady_clock::now();
      update_all(update);
      return seconds_since(start);
    };
    const std::vector<std::int64_t> unique(all.rows, all.rows + all.num_rows);
    const double once = of(single.of(unique));
    seconds.push_back((of(all) - once) / static_cast<double>(kIds - all.num_rows));
  }
  return std::max(0.0, median(std::move(seconds)));
}

}  // namespace weft::train
