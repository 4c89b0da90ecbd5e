// for each row:  nothing, if the replicas are equal;  else for 128 columns at a time
//   sums = values of each replica in turn, in fp64;  the quotients, rounded, into the own row
//
// Bound by memory, and by the conversions of 16-bit rows. A task is 1024 rows.

#include "weft/kernels/row_average.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/kernels/row_fields.h"
#include "weft/kernels/tasks.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kAveragedRowsPerTask = 1024;
constexpr std::int64_t kAveragedColumns = 128;  // summed at a time, on the stack

/// Runs body(first column, columns) over [0, cols).
template <typename Body>
void for_some_columns(std::int64_t cols, const Body& body) {
  for (std::int64_t first = 0; first < cols; first += kAveragedColumns) {
    body(first, std::min(kAveragedColumns, cols - first));
  }
}

BFloat16 rounded_to(BFloat16 /*type*/, float value, std::uint32_t random) {
  return to_bfloat16_stochastic(value, random);
}

Float16 rounded_to(Float16 /*type*/, float value, std::uint32_t random) {
  return to_float16_stochastic(value, random);
}

/// One row of a job, wherever its replicas have it.
class ReplicatedRow {
 public:
  ReplicatedRow(const RowAverage& job, const RowFields& fields, std::int64_t index)
      : job_(job), fields_(fields), index_(index) {}

  void average() const {
    if (equal()) {
      return;
    }
    switch (job_.table.dtype) {
      case DType::kFloat16:
        average_halves<Float16>();
        break;
      case DType::kBFloat16:
        average_halves<BFloat16>();
        break;
      case DType::kSplitBFloat16:
        average_split();
        break;
      default:
        average_floats(0, job_.table.cols);
    }
    if (job_.state_floats > 0) {
      average_floats(job_.parts_of_row() - 1, job_.state_floats);
    }
  }

 private:
  [[nodiscard]] std::byte* at_replica(std::size_t part, std::size_t replica) const {
    const RowPart& place = job_.parts[replica * job_.parts_of_row() + part];
    return place.data +
           place.stride * (place.rows == nullptr ? index_ : std::int64_t{place.rows[index_]});
  }

  template <typename T>
  [[nodiscard]] const T* values(std::size_t part, std::size_t replica) const {
    return reinterpret_cast<const T*>(at_replica(part, replica));
  }

  template <typename T>
  [[nodiscard]] T* own(std::size_t part) const {
    return reinterpret_cast<T*>(at_replica(part, job_.own));
  }

  /// Bit by bit: their average is what they are.
  [[nodiscard]] bool equal() const {
    for (std::size_t part = 0; part < job_.parts_of_row(); ++part) {
      const std::byte* const first = at_replica(part, 0);
      for (std::size_t m = 1; m < job_.replicas; ++m) {
        if (std::memcmp(first, at_replica(part, m), at(fields_[part].bytes)) != 0) {
          return false;
        }
      }
    }
    return true;
  }

  /// Calls store(column, mean) for columns [first, first + count); value(replica, column) gives
  /// what is averaged. A sum begins with its first term, so that minus zeros stay.
  template <typename Value, typename Store>
  void average_columns(std::int64_t first,
                       std::int64_t count,
                       const Value& value,
                       const Store& store) const {
    std::array<double, kAveragedColumns> sums;
    for (std::size_t m = 0; m < job_.replicas; ++m) {
      const auto of = value(m);
      for (std::int64_t c = 0; c < count; ++c) {
        const auto term = static_cast<double>(of(first + c));
        sums[at(c)] = m == 0 ? term : sums[at(c)] + term;
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      store(first + c, static_cast<float>(sums[at(c)] / static_cast<double>(job_.replicas)));
    }
  }

  void average_floats(std::size_t part, std::int64_t floats) const {
    auto* const out = own<float>(part);
    for_some_columns(floats, [&](std::int64_t first, std::int64_t count) {
      average_columns(
          first, count,
          [&](std::size_t m) {
            return [in = values<float>(part, m)](std::int64_t c) { return in[c]; };
          },
          [&](std::int64_t c, float mean) { out[c] = mean; });
    });
  }

  template <typename Element>
  void average_halves() const {
    const RowTable& table = job_.table;
    auto* const out = own<Element>(0);
    const std::int64_t row =
        job_.rows == nullptr ? job_.first + index_ : std::int64_t{job_.rows[index_]};
    const std::int64_t number = table.whole_row(row);
    std::array<std::uint32_t, RowDraws::kColumns> random{};
    for_some_columns(table.cols, [&](std::int64_t first, std::int64_t count) {
      average_columns(
          first, count,
          [&](std::size_t m) {
            return [in = values<Element>(0, m)](std::int64_t c) { return to_float(in[c]); };
          },
          [&](std::int64_t c, float mean) {
            const std::int64_t place = c % RowDraws::kColumns;  // the first is a multiple of 16
            if (place == 0) {
              random = job_.draws.bits(number, job_.step, table.first_col + c);
            }
            out[c] = rounded_to(Element{}, mean, random[at(place)]);
          });
    });
  }

  void average_split() const {
    auto* const high = own<BFloat16>(0);
    auto* const low = own<std::int16_t>(1);
    for_some_columns(job_.table.cols, [&](std::int64_t first, std::int64_t count) {
      average_columns(
          first, count,
          [&](std::size_t m) {
            return [highs = values<BFloat16>(0, m), lows = values<std::int16_t>(1, m)](
                       std::int64_t c) { return to_float(SplitBFloat16{highs[c], lows[c]}); };
          },
          [&](std::int64_t c, float mean) {
            const SplitBFloat16 halves = to_split_bfloat16(mean);
            high[c] = halves.high;
            low[c] = halves.low;
          });
    });
  }

  const RowAverage& job_;
  const RowFields& fields_;
  std::int64_t index_;
};

}  // namespace

void cpu::average_rows(Context& ctx, std::span<const RowAverage> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        return (jobs[at(i)].count + kAveragedRowsPerTask - 1) / kAveragedRowsPerTask;
      },
      [&](std::int64_t i, std::int64_t task) {
        const RowAverage& job = jobs[at(i)];
        const RowFields fields(job.table, job.state_floats);
        const std::int64_t first = task * kAveragedRowsPerTask;
        for (std::int64_t row = first; row < std::min(first + kAveragedRowsPerTask, job.count);
             ++row) {
          ReplicatedRow(job, fields, row).average();
        }
      });
}

}  // namespace weft::kernels
