/// The sparse part of a training step on one rank: tables, a batch of ids, lookup, coalescing,
/// update. Beside it the same rows touched by the probe of row_probe.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/row_probe.h"
#include "weft/data/zipf.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/sparse_update.h"
#include "weft/spec/config.h"
#include "weft/storage/row_store.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {

struct SparseShape {
  std::int64_t tables = 26;
  std::int64_t rows = 1'000'000;
  std::int64_t dim = 64;
  std::int64_t batch = 2048;
  std::int64_t length = 1;  ///< ids of every bag
  double zipf = 0.0;        ///< exponent; 0: uniform
  spec::RowDType dtype = spec::RowDType::kFp32;
  spec::SparseOptimizer optimizer;
  bool pooled = true;
  std::int64_t parts = 8;
  int threads = 1;
};

/// Seconds of one step. With one thread the time is that of the thread, so that what else runs on
/// a shared machine counts less; otherwise it is wall-clock time.
struct SparseTimes {
  double forward = 0.0;
  double coalesce = 0.0;
  double update = 0.0;
};

/// What the probe touches: rows alone; rows with their state; or all that must move: rows, state,
/// the vectors written by the lookup and one gradient vector per unique row.
enum class Touched { kWeights, kRows, kAll };

/// Seconds of reading every looked-up row, and of reading and writing every unique one.
struct TouchTimes {
  double gather = 0.0;
  double scatter = 0.0;
};

class SparseJob {
 public:
  explicit SparseJob(const SparseShape& shape);

  /// Lookup, coalescing and update of a fresh batch, whose rows no near cache holds.
  SparseTimes step();

  /// Touches the rows of a batch, after drawing it.
  TouchTimes touch(std::size_t ahead, Touched touched);

  [[nodiscard]] std::int64_t num_ids() const {
    return shape_.tables * shape_.batch * shape_.length;
  }

  [[nodiscard]] std::int64_t num_unique() const;

 private:
  struct Table {
    storage::RowStore store;
    kernels::RunBuffers buffers;
    std::vector<std::int64_t> ids;
    data::Scatter scatter;
    kernels::BagLookup lookup = {};
    kernels::GradientBlock block = {};
    kernels::SparseUpdate update = {};
    std::vector<std::int64_t> gathered = {};  ///< bytes from the first row, for the probe
    std::vector<std::int64_t> scattered = {};
    std::vector<std::int64_t> rests = {};      ///< state and low halves
    std::vector<std::int64_t> gradients = {};  ///< of unique rows
    std::vector<std::int64_t> outputs = {};    ///< of vectors
  };

  void draw();
  void add_table(const spec::Table& table, std::int64_t number);
  void forward();
  void coalesce();
  void update();
  [[nodiscard]] double now() const;
  void list_rows();
  [[nodiscard]] std::int64_t vectors() const;
  double gather(std::size_t ahead, Touched touched);
  double scatter(std::size_t ahead, Touched touched);

  SparseShape shape_;
  std::unique_ptr<Device> device_;
  Context ctx_;
  data::ZipfSampler sampler_;
  data::WordStream words_{1};
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> bag_parts_;
  Buffer out_;
  Buffer grads_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<kernels::BagLookup> lookups_;
  std::vector<kernels::CoalesceJob> coalesces_;
  std::vector<kernels::SparseUpdate> updates_;
  std::uint64_t step_ = 0;
};

}  // namespace weft::bench
