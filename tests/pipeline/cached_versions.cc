#include "tests/pipeline/cached_versions.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "weft/base/at.h"

namespace weft::pipeline {
namespace {

/// Both as floats, which are exact for as many as a test has.
struct FloatVersion {
  float row = 0.0F;
  float version = 0.0F;
};

float* number_in(void* rows, std::int64_t stride, std::int64_t slot) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(rows) + slot * stride);
}

void set_version(const kernels::RowTable& table, std::int64_t slot, const Versioned& value) {
  *number_in(table.weights, table.weight_stride, slot) = static_cast<float>(value.row);
  *number_in(table.state, table.state_stride, slot) = static_cast<float>(value.version);
}

}  // namespace

CachedVersions::CachedVersions(Device& device, const SlowStoreOptions& options)
    : options_(options),
      backing_(std::make_unique<storage::test::LateBacking>(
          storage::test::LateBackingOptions{.row_bytes = sizeof(FloatVersion),
                                            .weight_bytes = sizeof(float),
                                            .most_writes = at(options.most_writes),
                                            .write_delay = options.write_delay,
                                            .read_delay = options.read_delay,
                                            .seed = options.seed})) {
  spec::Table table;
  table.name = "versions";
  table.num_embeddings = options.rows;
  table.embedding_dim = 1;
  table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  cache_ = std::make_unique<storage::RowCache>(
      device,
      storage::RowCacheOptions{.table = table,
                               .rows = options.rows,
                               .cols = 1,
                               .shape = layout::cache_shape(options.slots, 8, 0.05),
                               .policy = static_cast<kernels::CachePolicy>(options.seed % 3)},
      *backing_, [](Context& /*ctx*/, const kernels::RowTable& rows, auto numbers, auto slots) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          set_version(rows, slots[i], {numbers[i], 0});
        }
      });
}

Versioned CachedVersions::read(std::int64_t slot) {
  const kernels::RowTable table = cache_->view();
  return {static_cast<std::int64_t>(*number_in(table.weights, table.weight_stride, slot)),
          static_cast<std::int64_t>(*number_in(table.state, table.state_stride, slot))};
}

void CachedVersions::write(std::int64_t slot, const Versioned& value) {
  set_version(cache_->view(), slot, value);
}

std::vector<std::int64_t> CachedVersions::below() {
  std::vector<std::int64_t> rows(at(options_.rows));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<FloatVersion> values(rows.size());
  std::vector<std::uint8_t> found(rows.size());
  const std::unique_ptr<storage::RowReads> reads = backing_->make_reads();
  reads->begin(rows, reinterpret_cast<std::byte*>(values.data()));
  reads->wait(found);
  std::vector<std::int64_t> versions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_own = found[i] == 0 || static_cast<std::int64_t>(values[i].row) == rows[i];
    versions.push_back(is_own ? static_cast<std::int64_t>(values[i].version) : -1);
  }
  return versions;
}

SlowStoreCounts CachedVersions::counts() {
  const storage::TierCounts tier = cache_->counts();
  return {.early = tier.asked - tier.late,
          .late = tier.late,
          .evicted = tier.written,
          .buffered = backing_->buffered(),
          .reordered = backing_->reordered()};
}

}  // namespace weft::pipeline
