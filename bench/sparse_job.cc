#include "bench/sparse_job.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>

#include "weft/base/thread_pool.h"
#include "weft/embedding/initial_value.h"
#include "weft/kernels/initial_values.h"
#include "weft/optim/sparse.h"

namespace weft::bench {
namespace {

// Every byte of gradients and state has this value, which makes floats of 0.0115.
constexpr int kFill = 0x3C;

std::atomic<std::uint64_t> sink;

double seconds(clockid_t clock) {
  std::timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void fill(Device& device, void* data, std::int64_t bytes) {
  constexpr std::int64_t kPieces = 64;
  device.pool().parallel_for(kPieces, [&](std::int64_t i) {
    const Range own = piece(bytes, kPieces, i);
    std::memset(static_cast<std::byte*>(data) + own.begin, kFill,
                static_cast<std::size_t>(own.size()));
  });
}

/// Bytes of a row that a lookup reads.
std::int64_t weight_bytes(const storage::RowStore& store) {
  return store.cols() * (store.dtype() == DType::kFloat32 ? 4 : 2);
}

/// State, then low halves, lie side by side.
std::int64_t rest_bytes(const storage::RowStore& store) {
  return store.state_floats() * 4 + (store.low() == nullptr ? 0 : store.cols() * 2);
}

std::byte* rest(const storage::RowStore& store) {
  return store.state() == nullptr ? store.low() : store.state();
}

std::span<const std::int64_t> part(const std::vector<std::int64_t>& all, Range range) {
  return std::span(all).subspan(static_cast<std::size_t>(range.begin),
                                static_cast<std::size_t>(range.size()));
}

}  // namespace

SparseJob::SparseJob(const SparseShape& shape)
    : shape_(shape),
      device_(make_device({.kind = DeviceKind::kCpu, .threads = shape.threads})),
      ctx_{.device = device_.get(), .pool = &device_->pool(), .native_stream = nullptr},
      sampler_(shape.rows, shape.zipf),
      out_(*device_),
      grads_(*device_) {
  for (std::int64_t b = 0; b <= shape.batch; ++b) {
    offsets_.push_back(b * shape.length);
    bag_parts_.push_back(static_cast<std::int32_t>(b * shape.parts / shape.batch));
  }
  const std::int64_t floats = shape.tables * vectors() * shape.dim;
  out_.resize_for<float>(floats);
  grads_.resize_for<float>(floats);
  fill(*device_, grads_.as<void>(), grads_.bytes());
  spec::Table table;
  table.num_embeddings = shape.rows;
  table.embedding_dim = shape.dim;
  table.dtype = shape.dtype;
  table.optimizer = shape.optimizer;
  for (std::int64_t t = 0; t < shape.tables; ++t) {
    add_table(table, t);
  }
}

void SparseJob::add_table(const spec::Table& table, std::int64_t number) {
  auto added = std::make_unique<Table>(Table{
      .store = storage::RowStore(*device_, table, shape_.rows, shape_.dim),
      .buffers = kernels::RunBuffers(*device_),
      .ids = std::vector<std::int64_t>(static_cast<std::size_t>(shape_.batch * shape_.length)),
      .scatter = data::Scatter(static_cast<std::uint64_t>(shape_.rows),
                               static_cast<std::uint64_t>(number))});
  const storage::RowStore& store = added->store;
  fill(*device_, store.weights(), store.bytes());
  // Values as a job has them: in fp16 some are subnormal, which takes longer to round.
  kernels::InitialRows initial = embedding::initial_rows(table, 1);
  initial.table = store.view();
  initial.rows = {0, shape_.rows};
  kernels::set_initial_rows(ctx_, std::span(&initial, 1));
  const kernels::Bags bags{.ids = added->ids.data(),
                           .offsets = offsets_.data(),
                           .weights = nullptr,
                           .bags = shape_.batch};
  added->lookup = {.weights = store.weights(),
                   .weight_stride = store.weight_stride(),
                   .dtype = store.dtype(),
                   .cols = shape_.dim,
                   .bags = bags,
                   .pooled = shape_.pooled,
                   .out = out_.as<float>() + number * vectors() * shape_.dim,
                   .out_stride = shape_.dim};
  added->block = {.bags = bags,
                  .pooled = shape_.pooled,
                  .grads = grads_.as<float>() + number * vectors() * shape_.dim,
                  .grad_stride = shape_.dim,
                  .parts = bag_parts_.data()};
  added->update.table = store.view();
  added->update.parts = shape_.parts;
  lookups_.push_back(added->lookup);
  tables_.push_back(std::move(added));
}

double SparseJob::now() const {
  return seconds(shape_.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

void SparseJob::draw() {
  for (const auto& table : tables_) {
    for (std::int64_t& id : table->ids) {
      id = static_cast<std::int64_t>(table->scatter(sampler_(words_)));
    }
  }
}

void SparseJob::forward() {
  kernels::embedding_bag(ctx_, lookups_);
}

void SparseJob::coalesce() {
  coalesces_.clear();
  for (const auto& table : tables_) {
    coalesces_.push_back({.blocks = std::span(&table->block, 1),
                          .rows = shape_.rows,
                          .parts = shape_.parts,
                          .buffers = &table->buffers,
                          .runs = &table->update.runs});
  }
  kernels::coalesce(ctx_, coalesces_);
}

void SparseJob::update() {
  ++step_;
  updates_.clear();
  for (const auto& table : tables_) {
    table->update.params =
        optim::update_params(shape_.optimizer, 1.0, static_cast<std::int64_t>(step_));
    updates_.push_back(table->update);
  }
  kernels::update_rows(ctx_, updates_);
}

SparseTimes SparseJob::step() {
  draw();
  const double start = now();
  forward();
  const double looked_up = now();
  coalesce();
  const double sorted = now();
  update();
  return {looked_up - start, sorted - looked_up, now() - sorted};
}

std::int64_t SparseJob::num_unique() const {
  std::int64_t rows = 0;
  for (const auto& table : tables_) {
    rows += table->update.runs.num_rows;
  }
  return rows;
}

std::int64_t SparseJob::vectors() const {
  return shape_.pooled ? shape_.batch : shape_.batch * shape_.length;
}

/// Where what the probe touches lies, in the order of the kernels.
void SparseJob::list_rows() {
  for (const auto& table : tables_) {
    const kernels::RowRuns& runs = table->update.runs;
    table->gathered.clear();
    table->scattered.clear();
    table->rests.clear();
    table->gradients.clear();
    table->outputs.clear();
    for (const std::int64_t id : table->ids) {
      table->gathered.push_back(id * table->store.weight_stride());
    }
    for (std::int64_t v = 0; v < vectors(); ++v) {
      table->outputs.push_back(v * shape_.dim * 4);
    }
    for (std::int64_t u = 0; u < runs.num_rows; ++u) {
      const float* const gradient = runs.grads[runs.segment_entries[runs.row_segments[u]]];
      table->scattered.push_back(runs.rows[u] * table->store.weight_stride());
      table->rests.push_back(runs.rows[u] * table->store.rest_stride());
      table->gradients.push_back((gradient - grads_.as<float>()) * 4);
    }
  }
}

/// Every thread touches its piece of each table's bags.
double SparseJob::gather(std::size_t ahead, Touched touched) {
  const double start = now();
  device_->pool().parallel_for(shape_.threads, [&](std::int64_t thread) {
    for (const auto& table : tables_) {
      const storage::RowStore& store = table->store;
      const std::int64_t per_vector = num_ids() / shape_.tables / vectors();
      const Range own = piece(vectors(), shape_.threads, thread);
      const RowList lists[] = {
          {.memory = {store.weights(), weight_bytes(store)},
           .offsets = part(table->gathered, {own.begin * per_vector, own.end * per_vector}),
           .touch = Touch::kRead},
          {.memory = {reinterpret_cast<std::byte*>(table->lookup.out), shape_.dim * 4},
           .offsets = part(table->outputs, own),
           .touch = Touch::kStream,
           .every = static_cast<std::size_t>(per_vector)}};
      sink += touch_rows(std::span(lists).first(touched == Touched::kAll ? 2 : 1), ahead);
    }
  });
  return now() - start;
}

/// Every thread touches its piece of each table's unique rows.
double SparseJob::scatter(std::size_t ahead, Touched touched) {
  const double start = now();
  device_->pool().parallel_for(shape_.threads, [&](std::int64_t thread) {
    for (const auto& table : tables_) {
      const storage::RowStore& store = table->store;
      const Range own =
          piece(static_cast<std::int64_t>(table->scattered.size()), shape_.threads, thread);
      RowList lists[3] = {};
      std::size_t count = 0;
      lists[count++] = {.memory = {store.weights(), weight_bytes(store)},
                        .offsets = part(table->scattered, own),
                        .touch = Touch::kRewrite};
      if (touched != Touched::kWeights && rest_bytes(store) > 0) {
        lists[count++] = {.memory = {rest(store), rest_bytes(store)},
                          .offsets = part(table->rests, own),
                          .touch = Touch::kRewrite};
      }
      if (touched == Touched::kAll) {
        lists[count++] = {.memory = {grads_.as<std::byte>(), shape_.dim * 4},
                          .offsets = part(table->gradients, own),
                          .touch = Touch::kRead};
      }
      sink += touch_rows(std::span(lists).first(count), ahead);
    }
  });
  return now() - start;
}

TouchTimes SparseJob::touch(std::size_t ahead, Touched touched) {
  draw();
  coalesce();
  list_rows();
  return {gather(ahead, touched), scatter(ahead, touched)};
}

}  // namespace weft::bench
