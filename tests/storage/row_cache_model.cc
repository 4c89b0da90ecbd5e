#include "tests/storage/row_cache_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "weft/base/at.h"
#include "weft/kernels/initial_values.h"
#include "weft/kernels/row_moves.h"
#include "weft/layout/tables.h"

namespace weft::storage::test {
namespace {

RowMaker uniform_rows(std::int64_t state_floats) {
  return [state_floats](Context& ctx, const kernels::RowTable& table,
                        std::span<const std::int64_t> rows, std::span<const std::int64_t> slots) {
    const kernels::InitialRows job{.table = table,
                                   .rows = {0, std::ssize(rows)},
                                   .numbers = rows.data(),
                                   .slots = slots.data(),
                                   .rule = kernels::InitialRule::kUniform,
                                   .key = 7,
                                   .state = 0.5F,
                                   .state_floats = state_floats};
    kernels::set_initial_rows(ctx, std::span(&job, 1));
  };
}

/// What is left of the table's numbers where a batch asks for rows from 0 on more often.
std::int64_t skewed(std::mt19937_64& random, std::int64_t rows) {
  const double place = std::uniform_real_distribution<double>(0, 1)(random);
  return static_cast<std::int64_t>(place * place * static_cast<double>(rows));
}

}  // namespace

CacheModel::CacheModel(const CacheModelOptions& options)
    : options_(options),
      random_(options.seed),
      update_random_(options.seed + 1),
      device_(make_device({.kind = options.device, .threads = 2, .check_max_delay_us = 20})) {
  table_.name = "clicks";
  table_.num_embeddings = options.rows;
  table_.embedding_dim = options.cols;
  table_.dtype = options.dtype;
  table_.optimizer.type = options.optimizer;
  maker_ = uniform_rows(state_floats(options.optimizer, options.cols));
  const layout::PackedRow row = layout::packed_row(table_, options.cols);
  backing_ = std::make_unique<LateBacking>(LateBackingOptions{.row_bytes = row.bytes(),
                                                              .weight_bytes = row.weight_bytes,
                                                              .write_delay = options.write_delay,
                                                              .read_delay = options.read_delay,
                                                              .seed = options.seed,
                                                              .broken = options.broken});
  cache_ = std::make_unique<RowCache>(*device_,
                                      RowCacheOptions{.table = table_,
                                                      .rows = options.rows,
                                                      .cols = options.cols,
                                                      .shape = options.shape,
                                                      .policy = options.policy,
                                                      .half_life = 10,
                                                      .left_out = options.left_out},
                                      *backing_, maker_);
  for (Batch& batch : batches_) {
    batch.resident = &batch == &batches_[3] && options.is_inserted ? cache_->make_inserted_batch()
                                                                   : cache_->make_batch();
    batch.fetch = [this, &batch](Context& ctx) {
      place(ctx, batch);
      batch.resident->fetch(ctx, batch.bags);
    };
    batch.step = [this, &batch](Context& ctx) {
      look_up(ctx, batch);
      update(ctx, batch);
    };
  }
  fetches_ = device_->make_stream({.name = "fetches", .is_inline = !options.has_threads});
  steps_ = device_->make_stream({.name = "steps", .is_inline = !options.has_threads});
}

CacheModel::~CacheModel() {
  fetches_.reset();  // before what their stages use
  steps_.reset();
}

void CacheModel::run(std::int64_t steps) {
  begin(batches_[0]);
  for (std::int64_t step = 0; step < steps; ++step) {
    Batch& now = batches_[at(step % 2)];
    Batch& next = batches_[at((step + 1) % 2)];
    if (options_.looks_ahead) {
      begin(next);
    }
    steps_->wait(now.fetched);
    steps_->enqueue(now.step);
    now.stepped = steps_->record();
    if (options_.average_rows > 0 && random_() % 2 == 0) {
      average();
    }
    if (!options_.looks_ahead) {
      begin(next);
    }
    if (options_.eval_rows > 0 && random_() % 4 == 0) {
      evaluate();
    }
    if (options_.has_walks && random_() % 8 == 0) {
      steps_->wait_on_host(now.stepped);
      walk();
    }
  }
  Batch& last = batches_[at(steps % 2)];
  steps_->wait(last.fetched);
  steps_->enqueue(last.step);
  fetches_->synchronize();
  steps_->synchronize();
  for (Batch& batch : batches_) {
    batch.resident->release(Release::kUnchanged);
  }
  check_below();
}

/// Behind the batch's last step, and, where nothing looks ahead, behind every one before it.
void CacheModel::begin(Batch& batch) {
  if (batch.stepped.stream != nullptr) {
    steps_->wait_on_host(batch.stepped);  // its lists are written next
  }
  draw(batch, options_.most_rows, random_() % 2 == 0 ? options_.least_rows : 0);
  batch.is_applied = random_() % 8 != 0;
  if (!options_.looks_ahead) {
    fetches_->wait(steps_->record());
  }
  fetches_->enqueue(batch.fetch);
  batch.fetched = fetches_->record();
}

void CacheModel::draw(Batch& batch, std::int64_t most, std::int64_t least) {
  std::set<std::int64_t> rows;
  const std::int64_t wanted =
      least + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  while (std::ssize(rows) < wanted) {
    rows.insert(skewed(random_, options_.rows));
  }
  batch.rows.assign(rows.begin(), rows.end());
  std::vector<std::int64_t> order = batch.rows;
  std::shuffle(order.begin(), order.end(), random_);
  for (std::size_t list = 0; list < 2; ++list) {
    batch.ids[list].assign(list, -1);  // of no row
    batch.offsets[list] = {static_cast<std::int64_t>(list)};
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t list = random_() % 2;
    batch.ids[list].insert(batch.ids[list].end(), 1 + random_() % 2, order[i]);
    if (random_() % 2 == 0) {
      batch.offsets[list].push_back(std::ssize(batch.ids[list]));
    }
  }
  for (std::size_t list = 0; list < 2; ++list) {
    batch.offsets[list].push_back(std::ssize(batch.ids[list]));
  }
}

void CacheModel::place(Context& ctx, Batch& batch) {
  batch.bags.clear();
  for (std::size_t list = 0; list < 2; ++list) {
    const auto copy = [&](Buffer& to, const std::vector<std::int64_t>& from) {
      to = to.device() == nullptr ? Buffer(*device_) : std::move(to);
      auto* const there = to.resize_for<std::int64_t>(std::ssize(from));
      ctx.device->copy_to_device(ctx, there, from.data(), std::ssize(from) * 8);
      return there;
    };
    batch.bags.push_back({.ids = copy(batch.device_ids[list], batch.ids[list]),
                          .offsets = copy(batch.device_offsets[list], batch.offsets[list]),
                          .weights = nullptr,
                          .bags = std::ssize(batch.offsets[list]) - 1});
  }
}

/// All ids of each list, and some of a list's bags.
void CacheModel::look_up(Context& ctx, Batch& batch) {
  if (++lookups_ % 2 == 0) {
    batch.resident->begin_fetch_late(ctx);
  }
  batch.resident->fetch_late(ctx);
  const std::int64_t bytes = backing_->row_bytes();
  for (std::size_t list = 0; list < 2; ++list) {
    kernels::Bags some = batch.bags[list];
    const std::int64_t skipped = some.bags > 2 ? 1 : 0;
    some.offsets += skipped;
    some.bags -= skipped;
    const kernels::Bags slots = batch.resident->resolve(list, some);
    const std::int64_t first = batch.offsets[list][at(skipped)];
    const std::int64_t count = std::ssize(batch.ids[list]) - first;
    std::vector<std::byte> packed(at(count * bytes));
    const kernels::RowMove job{.table = cache_->view(),
                               .state_floats = state_floats(options_.optimizer, options_.cols),
                               .count = count,
                               .slots = slots.ids + first,
                               .packed = packed.data()};
    kernels::pack_rows(ctx, std::span(&job, 1));
    for (std::int64_t i = 0; i < count; ++i) {
      compare(packed.data() + i * bytes, batch.ids[list][at(first + i)]);
    }
  }
}

/// Of all rows, or of the even ones and the odd ones.
void CacheModel::update(Context& ctx, Batch& batch) {
  if (!batch.is_applied) {
    batch.resident->release(Release::kUnchanged);
    return;
  }
  const std::int64_t cuts = update_random_() % 2 == 0 ? 1 : 2;
  for (std::int64_t cut = 0; cut < cuts; ++cut) {
    std::vector<std::int64_t> rows;
    std::vector<std::byte> packed;
    for (const std::int64_t row : batch.rows) {
      if (row % cuts == cut) {
        const Row values = random_row();
        exists_[row] = values;
        rows.push_back(row);
        packed.insert(packed.end(), values.begin(), values.end());
      }
    }
    Buffer there(*device_, std::ssize(rows) * 8);
    ctx.device->copy_to_device(ctx, there.as<void>(), rows.data(), std::ssize(rows) * 8);
    const std::span slots = batch.resident->resolve(ctx, {there.as<std::int64_t>(), rows.size()});
    const kernels::RowMove job{.table = cache_->view(),
                               .state_floats = state_floats(options_.optimizer, options_.cols),
                               .count = std::ssize(rows),
                               .slots = slots.data(),
                               .packed = packed.data()};
    kernels::unpack_rows(ctx, std::span(&job, 1));
  }
  batch.resident->release(Release::kUpdated);
}

void CacheModel::evaluate() {
  Batch& batch = batches_[2];
  if (batch.stepped.stream != nullptr) {
    steps_->wait_on_host(batch.stepped);
  }
  draw(batch, options_.eval_rows, 0);
  batch.is_applied = false;
  // Behind the fetch of the batch that has been begun, as in a training.
  steps_->wait(fetches_->record());
  steps_->enqueue(batch.fetch);
  steps_->enqueue(batch.step);
  batch.stepped = steps_->record();
}

/// Beside the fetch of the next batch, which may lose its pins.
void CacheModel::average() {
  Batch& batch = batches_[3];
  if (batch.stepped.stream != nullptr) {
    steps_->wait_on_host(batch.stepped);
  }
  draw(batch, options_.average_rows, options_.average_rows);
  batch.is_applied = true;
  steps_->enqueue(batch.fetch);
  steps_->enqueue(batch.step);
  batch.stepped = steps_->record();
}

/// Beside the fetch of a batch.
void CacheModel::walk() {
  steps_->synchronize();
  std::vector<std::int64_t> rows;
  cache_->for_each_row([&](std::span<const std::int64_t> some) {
    rows.insert(rows.end(), some.begin(), some.end());
    std::vector<std::byte> packed(some.size() * at(backing_->row_bytes()));
    cache_->read_rows(some, packed.data());
    for (std::size_t i = 0; i < some.size(); ++i) {
      compare(packed.data() + i * at(backing_->row_bytes()), some[i]);
    }
  });
  std::sort(rows.begin(), rows.end());
  std::vector<std::int64_t> own;
  for (const auto& [row, values] : exists_) {
    own.push_back(row);
  }
  (rows == own ? counts_.right : counts_.wrong) += 1;
  std::vector<std::int64_t> all(at(options_.rows));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::byte> packed(all.size() * at(backing_->row_bytes()));
  cache_->read_rows(all, packed.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    compare(packed.data() + i * at(backing_->row_bytes()), all[i]);
  }
  if (random_() % 4 == 0) {
    std::set<std::int64_t> written;
    for (int i = 0; i < 20; ++i) {
      written.insert(skewed(random_, options_.rows));
    }
    std::vector<std::byte> values;
    for (const std::int64_t row : written) {
      exists_[row] = random_row();
      values.insert(values.end(), exists_[row].begin(), exists_[row].end());
    }
    cache_->write_rows(std::vector(written.begin(), written.end()), values.data());
  }
  if (random_() % 4 == 0) {
    check_below();
  }
}

void CacheModel::check_below() {
  cache_->drain();
  std::vector<std::int64_t> rows;
  backing_->for_each_row([&](std::span<const std::int64_t> some) {
    rows.insert(rows.end(), some.begin(), some.end());
  });
  std::vector<std::uint8_t> found(rows.size());
  std::vector<std::byte> packed(rows.size() * at(backing_->row_bytes()));
  const std::unique_ptr<RowReads> reads = backing_->make_reads();
  reads->begin(rows, packed.data());
  reads->wait(found);
  (rows.size() == exists_.size() ? counts_.right : counts_.wrong) += 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    compare(packed.data() + i * at(backing_->row_bytes()), rows[i]);
  }
}

void CacheModel::compare(const std::byte* got, std::int64_t row) {
  const Row& values = expected(row);
  const bool same = std::memcmp(got, values.data(), values.size()) == 0;
  (same ? counts_.right : counts_.wrong) += 1;
}

const CacheModel::Row& CacheModel::expected(std::int64_t row) {
  if (const auto found = exists_.find(row); found != exists_.end()) {
    return found->second;
  }
  Row& values = initial_[row];
  if (values.empty()) {
    const std::unique_ptr<Device> host = make_device({});
    const RowStore store(*host, table_, 1, options_.cols);
    const std::int64_t slot = 0;
    Context ctx{.device = host.get()};
    maker_(ctx, store.view(), std::span(&row, 1), std::span(&slot, 1));
    values.resize(at(store.row_bytes()));
    const kernels::RowMove job{.table = store.view(),
                               .state_floats = store.state_floats(),
                               .count = 1,
                               .slots = &slot,
                               .packed = values.data()};
    kernels::pack_rows(ctx, std::span(&job, 1));
  }
  return values;
}

CacheModel::Row CacheModel::random_row() {
  Row values(at(backing_->row_bytes()));
  for (std::byte& byte : values) {
    byte = static_cast<std::byte>(update_random_());
  }
  return values;
}

}  // namespace weft::storage::test
