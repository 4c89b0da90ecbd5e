// A cache against a model of its table: batches that read and write rows, two of them in flight on
// two streams, evaluations, walks over the rows and writes of rows between them. The model is a map
// of the rows that exist; every byte of every row that a batch looks up is compared with it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/storage/row_cache_backing.h"
#include "weft/layout/tiers.h"
#include "weft/storage/row_cache.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"

namespace weft::storage::test {

struct CacheModelOptions {
  DeviceKind device = DeviceKind::kCpu;
  spec::RowDType dtype = spec::RowDType::kFp32;
  SparseOptimizerKind optimizer = SparseOptimizerKind::kRowWiseAdagrad;
  std::int64_t cols = 5;
  std::int64_t rows = 400;
  layout::CacheShape shape;
  kernels::CachePolicy policy = kernels::CachePolicy::kLru;
  std::int64_t most_rows = 0;   ///< of a training batch
  std::int64_t least_rows = 0;  ///< of one in two
  std::int64_t eval_rows = 0;   ///< of an evaluation's, which come where it is above 0
  /// Of a batch that changes rows behind a step, beside the fetch of the next one: as averages of
  /// replica groups do.
  std::int64_t average_rows = 0;
  bool is_inserted = true;  ///< that batch; or stands where it comes
  bool looks_ahead = true;  ///< fetches the next batch before a step, on a stream of its own
  bool has_threads = true;  ///< or all on the thread of the test
  bool has_walks = true;    ///< rows are walked over, read and written between steps
  std::chrono::microseconds write_delay{100};
  std::chrono::microseconds read_delay{20};
  BrokenBacking broken = BrokenBacking::kNothing;
  CacheLeftOut left_out = CacheLeftOut::kNothing;
  std::uint64_t seed = 1;
};

/// What has been compared.
struct CacheModelCounts {
  std::int64_t right = 0;
  std::int64_t wrong = 0;
};

class CacheModel {
 public:
  explicit CacheModel(const CacheModelOptions& options);
  ~CacheModel();

  CacheModel(const CacheModel&) = delete;
  CacheModel& operator=(const CacheModel&) = delete;

  /// Trains; then everything is drained and compared with what lies below.
  void run(std::int64_t steps);

  [[nodiscard]] const CacheModelCounts& counts() const { return counts_; }

  [[nodiscard]] TierCounts tier() const { return cache_->counts(); }

  [[nodiscard]] std::int64_t buffered() const { return backing_->buffered(); }

 private:
  using Row = std::vector<std::byte>;

  /// Two lists of ids of one batch, in memory of the device, and what is asked of it.
  struct Batch {
    std::vector<std::int64_t> rows;  // distinct
    std::array<std::vector<std::int64_t>, 2> ids, offsets;
    std::array<Buffer, 2> device_ids, device_offsets;
    std::vector<kernels::Bags> bags;
    std::unique_ptr<ResidentRows> resident;
    bool is_applied = false;
    Stage fetch, step;
    Event fetched, stepped;
  };

  void draw(Batch& batch, std::int64_t most, std::int64_t least);
  void begin(Batch& batch);
  void place(Context& ctx, Batch& batch);
  void look_up(Context& ctx, Batch& batch);
  void update(Context& ctx, Batch& batch);
  void evaluate();
  void average();
  void walk();
  void check_below();
  void compare(const std::byte* got, std::int64_t row);
  [[nodiscard]] const Row& expected(std::int64_t row);
  [[nodiscard]] Row random_row();

  CacheModelOptions options_;
  spec::Table table_;
  std::mt19937_64 random_;         // of the thread that issues
  std::mt19937_64 update_random_;  // of updates
  std::int64_t lookups_ = 0;
  std::unique_ptr<Device> device_;
  RowMaker maker_;
  std::unique_ptr<LateBacking> backing_;
  std::unique_ptr<RowCache> cache_;
  std::array<Batch, 4> batches_;  // two of training, one of evaluations, one of averages
  std::map<std::int64_t, Row> exists_;
  std::map<std::int64_t, Row> initial_;
  CacheModelCounts counts_;
  std::unique_ptr<Stream> fetches_, steps_;
};

}  // namespace weft::storage::test
