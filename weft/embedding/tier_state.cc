// Rows of a TableShard by list: as packed rows, and items of state of rows that are not all in
// memory.

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/row_copies.h"
#include "weft/kernels/row_moves.h"
#include "weft/storage/host_rows.h"
#include "weft/storage/lazy_rows.h"
#include "weft/storage/row_cache.h"

namespace weft::embedding {
namespace {

/// Rows that are taken from a tier at a time.
constexpr std::int64_t kRowsAtOnce = 1024;

kernels::CachePolicy policy_of(spec::CachePolicy policy) {
  switch (policy) {
    case spec::CachePolicy::kLru:
      return kernels::CachePolicy::kLru;
    case spec::CachePolicy::kLfu:
      return kernels::CachePolicy::kLfu;
    case spec::CachePolicy::kAhead:
      break;
  }
  return kernels::CachePolicy::kComing;
}

}  // namespace

std::unique_ptr<storage::RowTier> TableShard::make_tier(Device& device) {
  const storage::RowMaker maker =
      [this](Context& ctx, const kernels::RowTable& table, std::span<const std::int64_t> rows,
             std::span<const std::int64_t> slots) { make_rows(ctx, table, rows, slots); };
  const spec::TableMemory& memory = table_.memory;
  if (memory.tier == spec::MemoryTier::kLazy) {
    return std::make_unique<storage::LazyRows>(device, table_, rows_.size(), cols_.size(), maker);
  }
  WEFT_CHECK(options_.backing != nullptr, "table '{}': a cache above nothing", table_.name);
  return std::make_unique<storage::RowCache>(
      device,
      storage::RowCacheOptions{
          .table = table_,
          .rows = rows_.size(),
          .cols = cols_.size(),
          .shape = layout::cache_shape_of_bytes(table_, cols_.size(), options_.cache_bytes,
                                                memory.ways, layout::kSpillShare),
          .policy = policy_of(memory.policy)},
      *options_.backing, maker);
}

/// Lists are on the host. From any thread.
void TableShard::make_rows(Context& ctx,
                           const kernels::RowTable& table,
                           std::span<const std::int64_t> rows,
                           std::span<const std::int64_t> slots) {
  const std::lock_guard lock(making_);
  std::vector<std::int64_t> numbers;
  for (const std::int64_t row : rows) {
    numbers.push_back(rows_.row(row));
  }
  const auto list = layout::row_numbers(std::ssize(rows));
  made_numbers_.resize_for(list);
  made_slots_.resize_for(list);
  ctx.device->copy_to_device(ctx, made_numbers_.as<void>(), numbers.data(), list.bytes());
  ctx.device->copy_to_device(ctx, made_slots_.as<void>(), slots.data(), list.bytes());
  kernels::InitialRows job = initial_;
  job.table = table;
  job.table.dim = table_.embedding_dim;
  job.table.first_col = cols_.begin;
  job.rows = {0, std::ssize(rows)};
  job.numbers = made_numbers_.as<const std::int64_t>();
  job.slots = made_slots_.as<const std::int64_t>();
  job.state_floats = state_floats_;
  kernels::set_initial_rows(ctx, std::span(&job, 1));
}

void TableShard::pack_slots(std::span<const std::int64_t> rows, std::byte* packed) const {
  Device& device = *overflow_.device();
  Context ctx{.device = &device};
  Buffer slots(device);
  const auto list = layout::row_numbers(std::ssize(rows));
  slots.resize_for(list);
  device.copy_to_device(ctx, slots.as<void>(), rows.data(), list.bytes());
  const kernels::RowMove move{.table = view_,
                              .state_floats = state_floats_,
                              .count = list.count,
                              .slots = slots.as<const std::int64_t>(),
                              .packed = packed};
  kernels::pack_rows(ctx, std::span(&move, 1));
}

void TableShard::unpack_slots(std::span<const std::int64_t> rows, const std::byte* packed) {
  Device& device = *overflow_.device();
  Context ctx{.device = &device};
  Buffer slots(device);
  const auto list = layout::row_numbers(std::ssize(rows));
  slots.resize_for(list);
  device.copy_to_device(ctx, slots.as<void>(), rows.data(), list.bytes());
  const kernels::RowMove move{.table = view_,
                              .state_floats = state_floats_,
                              .count = list.count,
                              .slots = slots.as<const std::int64_t>(),
                              .packed = const_cast<std::byte*>(packed)};  // only read
  kernels::unpack_rows(ctx, std::span(&move, 1));
}

void TableShard::pack_initial(std::span<const std::int64_t> rows, std::byte* packed) const {
  const std::int64_t row_bytes = kernels::packed_row(view_, state_floats_).bytes();
  storage::HostRows made(view_.dtype, std::min(kRowsAtOnce, std::ssize(rows)), cols_.size(),
                         state_floats_);
  std::vector<std::int64_t> numbers;
  for (std::int64_t first = 0; first < std::ssize(rows); first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, std::ssize(rows) - first);
    numbers.clear();
    for (const std::int64_t row : rows.subspan(at(first), at(count))) {
      numbers.push_back(rows_.row(row));
    }
    kernels::InitialRows job = initial_;
    job.table = made.table();
    job.table.dim = table_.embedding_dim;
    job.table.first_col = cols_.begin;
    job.rows = {0, count};
    job.numbers = numbers.data();
    job.slots = nullptr;
    job.state_floats = state_floats_;
    Context ctx;  // all of it is on the host
    kernels::cpu::set_initial_rows(ctx, std::span(&job, 1));
    made.pack(packed + first * row_bytes, count);
  }
}

void TableShard::read_tier(const ItemPlace& place,
                           std::int64_t begin,
                           std::int64_t rows,
                           void* out) const {
  const std::int64_t row_bytes = kernels::packed_row(view_, state_floats_).bytes();
  storage::HostRows some(view_.dtype, std::min(kRowsAtOnce, rows), cols_.size(), state_floats_);
  std::vector<std::byte> packed(at(some.rows() * row_bytes));
  std::vector<std::int64_t> local(at(some.rows()));
  const std::int64_t matrix_row_bytes = place.cols * kernels::element_bytes(view_, place.part);
  kernels::RowCopy copy{.table = some.table(),
                        .part = place.part,
                        .slots = {},
                        .first = place.first,
                        .cols = place.cols,
                        .matrix = nullptr,
                        .stride = matrix_row_bytes};
  auto* next = static_cast<std::byte*>(out);
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - first);
    std::iota(local.begin(), local.end(), begin + first);
    tier_->read_rows(std::span(local).first(at(count)), packed.data());
    some.unpack(packed.data(), count);
    copy.slots = {0, count};
    copy.matrix = next;
    next += count * matrix_row_bytes;
    Context ctx;
    kernels::cpu::copy_from_rows(ctx, std::span(&copy, 1));
  }
}

void TableShard::write_tier(const ItemPlace& place,
                            std::span<const std::int64_t> rows,
                            Range cols,
                            const void* in) {
  const std::int64_t row_bytes = kernels::packed_row(view_, state_floats_).bytes();
  storage::HostRows some(view_.dtype, std::min(kRowsAtOnce, std::ssize(rows)), cols_.size(),
                         state_floats_);
  std::vector<std::byte> packed(at(some.rows() * row_bytes));
  const std::int64_t matrix_row_bytes = cols.size() * kernels::element_bytes(view_, place.part);
  kernels::RowCopy copy{.table = some.table(),
                        .part = place.part,
                        .slots = {},
                        .first = place.first + cols.begin - place.first_col,
                        .cols = cols.size(),
                        .matrix = nullptr,
                        .stride = matrix_row_bytes};
  auto* next = const_cast<std::byte*>(static_cast<const std::byte*>(in));  // only read
  for (std::int64_t first = 0; first < std::ssize(rows); first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, std::ssize(rows) - first);
    const auto some_rows = rows.subspan(at(first), at(count));
    tier_->read_rows(some_rows, packed.data());
    some.unpack(packed.data(), count);
    copy.slots = {0, count};
    copy.matrix = next;
    next += count * matrix_row_bytes;
    Context ctx;
    kernels::cpu::copy_to_rows(ctx, std::span(&copy, 1));
    some.pack(packed.data(), count);
    tier_->write_rows(some_rows, packed.data());
  }
}

}  // namespace weft::embedding
