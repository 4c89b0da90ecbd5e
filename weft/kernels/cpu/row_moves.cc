// runs = the fields of a row, those that lie behind each other in slots as in packed rows as one
// for each row of a task:
//   ask for the runs of a later row's slot
//   for each run:  copy its bytes, a vector at a time
//
// Bound by memory: a row of b bytes moves 2b, and 3b where the lines that are written are read
// first. What lies at random places is a row's one to three runs in its slot; packed rows are one
// stream. A task is about 64 KiB of packed rows.

#include "weft/kernels/row_moves.h"

#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/row_moves.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/at.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// Fields that lie behind each other in a slot, as they do in a packed row.
struct Runs {
  std::array<RowField, 3> list;
  std::size_t size = 0;
};

inline Runs runs_of(const RowFields& fields) {
  Runs runs;
  for (const RowField& field : fields) {
    RowField* const last = runs.size == 0 ? nullptr : &runs.list[runs.size - 1];
    if (last != nullptr && last->stride == field.stride && last->data + last->bytes == field.data) {
      last->bytes += field.bytes;
    } else {
      runs.list[runs.size++] = field;
    }
  }
  return runs;
}

/// The last vector of a long run overlaps the one before it.
HWY_INLINE void copy_bytes(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto copy = [&](std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from + i)), d,
               reinterpret_cast<std::uint8_t*>(to + i));
  };
  std::int64_t i = 0;
  for (; i + lanes <= bytes; i += lanes) {
    copy(i);
  }
  if (i < bytes && bytes > lanes) {
    copy(bytes - lanes);
    return;
  }
  for (; i + 4 <= bytes; i += 4) {
    std::memcpy(to + i, from + i, 4);
  }
  if (i < bytes) {  // half a word: elements are 2 or 4 bytes
    std::memcpy(to + i, from + i, 2);
  }
}

/// Calls copy(address in the slot, address in the packed row, bytes) for every run.
template <class CopyRun>
HWY_INLINE void move_rows(const RowMove& job, Range rows, const CopyRun& copy) {
  const std::int64_t bytes = packed_row(job.table, job.state_floats).bytes();
  const Runs runs = runs_of(RowFields(job.table, job.state_floats));
  const std::int64_t ahead = rows_ahead(bytes);
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    if (i + ahead < job.count) {
      for (std::size_t r = 0; r < runs.size; ++r) {
        prefetch_row(runs.list[r].at(job.slots[i + ahead]), runs.list[r].bytes);
      }
    }
    std::byte* const packed = job.packed + i * bytes;
    for (std::size_t r = 0; r < runs.size; ++r) {
      copy(runs.list[r].at(job.slots[i]), packed + runs.list[r].offset, runs.list[r].bytes);
    }
  }
}

void pack(const RowMove& job, Range rows) {
  move_rows(job, rows,
            [](const std::byte* in_slot, std::byte* packed, std::int64_t bytes)
                HWY_ATTR { copy_bytes(in_slot, packed, bytes); });
}

void unpack(const RowMove& job, Range rows) {
  move_rows(job, rows,
            [](std::byte* in_slot, const std::byte* packed, std::int64_t bytes)
                HWY_ATTR { copy_bytes(packed, in_slot, bytes); });
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(pack);
HWY_EXPORT(unpack);

namespace {

constexpr std::int64_t kMovedBytesPerTask = std::int64_t{64} << 10;

template <typename Move>
void move_all(Context& ctx, std::span<const RowMove> jobs, const Move& move) {
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        const RowMove& job = jobs[at(i)];
        return RowWork{.rows = {0, job.count},
                       .row_bytes = packed_row(job.table, job.state_floats).bytes(),
                       .task_bytes = kMovedBytesPerTask};
      },
      [&](std::int64_t i, Range rows) { move(jobs[at(i)], rows); });
}

}  // namespace

void cpu::pack_rows(Context& ctx, std::span<const RowMove> jobs) {
  move_all(ctx, jobs,
           [](const RowMove& job, Range rows) { HWY_DYNAMIC_DISPATCH(pack)(job, rows); });
}

void cpu::unpack_rows(Context& ctx, std::span<const RowMove> jobs) {
  move_all(ctx, jobs,
           [](const RowMove& job, Range rows) { HWY_DYNAMIC_DISPATCH(unpack)(job, rows); });
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
