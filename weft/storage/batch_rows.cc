#include "weft/storage/batch_rows.h"

#include "weft/base/at.h"
#include "weft/layout/tables.h"

namespace weft::storage {
namespace {

constexpr auto kNumberBytes = static_cast<std::int64_t>(sizeof(std::int64_t));

}  // namespace

void BatchRows::find(Context& ctx, std::span<const kernels::Bags> lists, std::int64_t rows) {
  const kernels::DistinctJob job{
      .lists = lists, .rows = rows, .buffers = &buffers_, .distinct = &distinct_};
  kernels::find_distinct_rows(ctx, std::span(&job, 1));
  host_rows_.resize(at(distinct_.num_rows));
  host_slots_.assign(at(distinct_.num_rows), -1);
  ctx.device->copy_to_host(ctx, host_rows_.data(), distinct_.rows,
                           distinct_.num_rows * kNumberBytes);
}

void BatchRows::place(Context& ctx) {
  auto* const slots = slots_.resize_for(layout::row_numbers(distinct_.num_rows));
  ctx.device->copy_to_device(ctx, slots, host_slots_.data(), distinct_.num_rows * kNumberBytes);
  const kernels::PlaceSlots job{.count = distinct_.num_ids,
                                .places = distinct_.places,
                                .slots = slots,
                                .out = ids_.resize_for(layout::row_numbers(distinct_.num_ids))};
  kernels::slots_of_places(ctx, std::span(&job, 1));
}

kernels::Bags BatchRows::resolve(std::size_t list, const kernels::Bags& bags) const {
  kernels::Bags of_slots = bags;
  of_slots.ids = ids_.as<const std::int64_t>() + distinct_.shifts[list];
  return of_slots;
}

std::span<const std::int64_t> BatchRows::resolve(Context& ctx, std::span<const std::int64_t> rows) {
  const kernels::RowSlots job{.known = distinct_.num_rows,
                              .known_rows = distinct_.rows,
                              .slots = slots_.as<const std::int64_t>(),
                              .count = std::ssize(rows),
                              .rows = rows.data(),
                              .out = some_.resize_for(layout::row_numbers(std::ssize(rows)))};
  kernels::slots_of_rows(ctx, std::span(&job, 1));
  return {job.out, rows.size()};
}

}  // namespace weft::storage
