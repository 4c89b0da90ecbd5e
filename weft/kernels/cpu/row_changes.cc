// for each vector of a row, for some rows at a time:
//   their values and last values as floats, changes or means of them, codes, and these decoded
//   what was lost; last + decoded into the rows and their copies
// take_row_values: row by row, everything of it
//
// Per number 8 to 12 bytes read and as many written, besides its code. 4096 numbers in hand take
// 96 KiB with what lies between, so memory is read and written once. A task is 1024 rows.

#include "weft/kernels/row_changes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/kernels/cpu/codec_range.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kChangedRowsPerTask = 1024;
constexpr std::int64_t kFloatsInHand = 4096;  // 16 KiB

// Below these shares of a number what was lost of it is forgotten.
constexpr float kLeastShare = 0x1p-26F;
constexpr float kLeastLost = 0x1p-120F;

/// Numbers of some rows' vectors, in memory of the thread.
struct ChangeScratch {
  explicit ChangeScratch(const RowChanges& job) {
    std::int64_t floats = kFloatsInHand;
    for (const ChangeVector& vector : job.vectors) {
      floats = std::max(floats, vector.cols);
    }
    floats = (floats + 15) / 16 * 16;  // keeps doubles aligned
    float* const memory = ThreadScratch::get(6 * floats);
    sums = reinterpret_cast<double*>(memory);
    values = memory + 2 * floats;
    last = values + floats;
    decoded = last + floats;
    moved = decoded + floats;
  }

  double* sums;
  float* values;
  float* last;
  float* decoded;
  float* moved;
};

/// Some rows of a job, and one of their vectors.
struct ChangeChunk {
  const RowChanges& job;
  const ChangeVector& vector;
  Range rows;
  std::int64_t code;  ///< bytes before that of the first row

  [[nodiscard]] std::int64_t floats() const { return rows.size() * vector.cols; }

  /// Calls body(row of the job, number of its first float in hand).
  template <typename Body>
  void for_rows(const Body& body) const {
    for (std::int64_t k = 0; k < rows.size(); ++k) {
      body(rows.begin + k, k * vector.cols);
    }
  }
};

/// All vectors of rows of a job, some rows at a time.
template <typename Body>
void for_chunks(const RowChanges& job, Range rows, const Body& body) {
  std::int64_t begin_code = 0;  // of the vector's codes
  for (const ChangeVector& vector : job.vectors) {
    const std::int64_t bytes = encoded_bytes(job.codec, vector.cols);
    const std::int64_t at_once = std::max<std::int64_t>(1, kFloatsInHand / vector.cols);
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += at_once) {
      body(ChangeChunk{
          job, vector, {begin, std::min(rows.end, begin + at_once)}, begin_code + begin * bytes});
    }
    begin_code += job.rows.count * bytes;
  }
}

std::byte* weights_of(const RowTable& table, std::int64_t slot) {
  return static_cast<std::byte*>(table.weights) + slot * table.weight_stride;
}

std::int16_t* low_of(const RowTable& table, std::int64_t slot) {
  return reinterpret_cast<std::int16_t*>(static_cast<std::byte*>(table.low) +
                                         slot * table.low_stride);
}

float* state_of(const RowTable& table, std::int64_t slot) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(table.state) + slot * table.state_stride);
}

void copy_numbers(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, at(count) * sizeof(float));
}

/// Elements of any type but split_bf16 as floats.
void widen(DType dtype, const void* from, std::int64_t count, float* out) {
  const auto widen_halves = [&](const auto* halves) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = to_float(halves[i]);
    }
  };
  switch (dtype) {
    case DType::kFloat16:
      widen_halves(static_cast<const Float16*>(from));
      return;
    case DType::kBFloat16:
      widen_halves(static_cast<const BFloat16*>(from));
      return;
    default:
      copy_numbers(out, static_cast<const float*>(from), count);
  }
}

/// The weights of a row.
void read_weights(const RowTable& table, std::int64_t slot, float* out) {
  if (table.dtype != DType::kSplitBFloat16) {
    widen(table.dtype, weights_of(table, slot), table.cols, out);
    return;
  }
  const auto* const highs = reinterpret_cast<const BFloat16*>(weights_of(table, slot));
  const std::int16_t* const lows = low_of(table, slot);
  for (std::int64_t c = 0; c < table.cols; ++c) {
    out[c] = to_float(SplitBFloat16{highs[c], lows[c]});
  }
}

/// The rows' values.
void read_values(const ChangeChunk& chunk, float* out) {
  const RowChanges& job = chunk.job;
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    if (chunk.vector.part == RowCopy::Part::kWeights) {
      read_weights(job.table, job.rows.slot(i), out + first);
    } else {
      copy_numbers(out + first, state_of(job.table, job.rows.slot(i)) + chunk.vector.first,
                   chunk.vector.cols);
    }
  });
}

bool has_halves(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// A row's weights among the last common values.
std::byte* last_weights_of(const RowChanges& job, std::int64_t i) {
  return static_cast<std::byte*>(job.last_weights) +
         job.rows.copy(i) * job.table.cols * (has_halves(job.table.dtype) ? 2 : 4);
}

float* last_state_of(const ChangeChunk& chunk, std::int64_t i) {
  return chunk.job.last_state + chunk.job.rows.copy(i) * chunk.job.state_floats +
         chunk.vector.first;
}

void read_last(const ChangeChunk& chunk, float* out) {
  const RowChanges& job = chunk.job;
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    if (chunk.vector.part == RowCopy::Part::kState) {
      copy_numbers(out + first, last_state_of(chunk, i), chunk.vector.cols);
    } else {
      widen(job.table.dtype, last_weights_of(job, i), chunk.vector.cols, out + first);
    }
  });
}

float* lost_of(const ChangeChunk& chunk, std::int64_t i) {
  return chunk.job.lost + chunk.job.rows.copy(i) * chunk.job.lost_floats + chunk.vector.lost;
}

void add_atomically(std::int64_t& to, std::int64_t count) {
  std::atomic_ref(to).fetch_add(count, std::memory_order_relaxed);
}

void encode_values(const ChangeChunk& chunk, const float* values) {
  const std::int64_t cols = chunk.vector.cols;
  const CodecClips clips = cpu::encode_range({.codec = chunk.job.codec,
                                              .vectors = values,
                                              .stride = cols,
                                              .cols = cols,
                                              .to = chunk.job.codes + chunk.code},
                                             {0, chunk.rows.size()});
  if (clips != CodecClips{} && chunk.job.clips != nullptr) {
    add_atomically(chunk.job.clips->non_finite, clips.non_finite);
    add_atomically(chunk.job.clips->clipped, clips.clipped);
  }
}

void decode_values(const ChangeChunk& chunk, const std::byte* codes, float* values) {
  const std::int64_t cols = chunk.vector.cols;
  cpu::decode_range({.codec = chunk.job.codec,
                     .from = codes + chunk.code,
                     .vectors = values,
                     .stride = cols,
                     .cols = cols},
                    {0, chunk.rows.size()});
}

/// What is left of `lost` for the next time.
float worth_keeping(float lost, float last) {
  const float size = std::fabs(lost);
  const float least = std::max(std::fabs(last) * kLeastShare, kLeastLost);
  return size >= least && size <= std::numeric_limits<float>::max() ? lost : 0.0F;
}

/// What was wanted and is not in what was decoded; flags the rows of which something is left.
void keep_lost(const ChangeChunk& chunk, const ChangeScratch& scratch) {
  const RowChanges& job = chunk.job;
  if (job.lost == nullptr) {
    return;
  }
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    float* const lost = lost_of(chunk, i);
    bool any = false;
    for (std::int64_t c = 0; c < chunk.vector.cols; ++c) {
      lost[c] = worth_keeping(scratch.values[first + c] - scratch.decoded[first + c],
                              scratch.last[first + c]);
      any |= lost[c] != 0.0F;
    }
    if (any && job.flags != nullptr) {
      job.flags[job.rows.places[i]] = 1;
    }
  });
}

void encode_chunk(const ChangeChunk& chunk, const ChangeScratch& scratch) {
  read_values(chunk, scratch.values);
  read_last(chunk, scratch.last);
  for (std::int64_t i = 0; i < chunk.floats(); ++i) {
    scratch.values[i] -= scratch.last[i];
  }
  if (chunk.job.lost == nullptr) {
    encode_values(chunk, scratch.values);
    return;
  }
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    const float* const lost = lost_of(chunk, i);
    for (std::int64_t c = 0; c < chunk.vector.cols; ++c) {
      scratch.values[first + c] += lost[c];
    }
  });
  encode_values(chunk, scratch.values);
  decode_values(chunk, chunk.job.codes, scratch.decoded);
  keep_lost(chunk, scratch);
}

/// The sums of the replicas' changes, in their order. A sum begins with its first term, so that
/// minus zeros stay.
void sum_changes(const ChangeChunk& chunk,
                 std::span<const std::byte* const> arrived,
                 const ChangeScratch& scratch) {
  const std::int64_t count = chunk.floats();
  const auto add = [&](bool is_first, const auto& change) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double term = change(i);
      scratch.sums[i] = is_first ? term : scratch.sums[i] + term;
    }
  };
  for (std::size_t m = 0; m < arrived.size(); ++m) {
    if (arrived[m] == nullptr) {
      add(m == 0, [&](std::int64_t i) {
        return static_cast<double>(scratch.values[i]) - static_cast<double>(scratch.last[i]);
      });
      continue;
    }
    decode_values(chunk, arrived[m], scratch.decoded);
    add(m == 0, [&](std::int64_t i) { return static_cast<double>(scratch.decoded[i]); });
  }
}

/// Into `values`.
void make_means(const ChangeChunk& chunk, std::size_t replicas, const ChangeScratch& scratch) {
  const auto divisor = static_cast<double>(replicas);
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    const float* const lost = chunk.job.lost == nullptr ? nullptr : lost_of(chunk, i);
    for (std::int64_t c = 0; c < chunk.vector.cols; ++c) {
      const double more = lost == nullptr ? 0.0 : static_cast<double>(lost[c]);
      scratch.values[first + c] = static_cast<float>(scratch.sums[first + c] / divisor + more);
    }
  });
}

/// Last + decoded into `moved`. What does not fit stays, and its decoded mean becomes 0; returns
/// how many these are.
std::int64_t add_decoded(const ChangeChunk& chunk, const ChangeScratch& scratch) {
  const bool is_split = chunk.vector.part == RowCopy::Part::kWeights &&
                        chunk.job.table.dtype == DType::kSplitBFloat16;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < chunk.floats(); ++i) {
    const float last = scratch.last[i];
    if (scratch.decoded[i] == 0.0F) {
      scratch.moved[i] = last;  // also a minus zero
      continue;
    }
    const float next = last + scratch.decoded[i];
    const bool fits = is_split ? has_finite_high_half(next) : std::isfinite(next);
    if (fits && !(chunk.vector.squares && next < 0.0F)) {
      scratch.moved[i] = next;
    } else {
      scratch.moved[i] = last;
      scratch.decoded[i] = 0.0F;
      ++kept;
    }
  }
  return kept;
}

BFloat16 round_to(BFloat16 /*type*/, float value, std::uint32_t random) {
  return to_bfloat16_stochastic(value, random);
}

Float16 round_to(Float16 /*type*/, float value, std::uint32_t random) {
  return to_float16_stochastic(value, random);
}

template <typename Element>
void write_halves(const RowChanges& job, std::int64_t i, const float* values) {
  const RowTable& table = job.table;
  const std::int64_t number = table.whole_row(job.rows.row(i));
  auto* const out = reinterpret_cast<Element*>(weights_of(table, job.rows.slot(i)));
  std::array<std::uint32_t, RowDraws::kColumns> random{};
  for (std::int64_t c = 0; c < table.cols; ++c) {
    const std::int64_t place = c % RowDraws::kColumns;  // the first column is a multiple of 16
    if (place == 0) {
      random = job.draws.bits(number, job.step, table.first_col + c);
    }
    out[c] = round_to(Element{}, values[c], random[at(place)]);
  }
  std::memcpy(last_weights_of(job, i), out, at(table.cols) * sizeof(Element));
}

/// Into the row and its last value.
void write_weights(const RowChanges& job, std::int64_t i, const float* values) {
  const RowTable& table = job.table;
  std::byte* const weights = weights_of(table, job.rows.slot(i));
  switch (table.dtype) {
    case DType::kFloat16:
      write_halves<Float16>(job, i, values);
      return;
    case DType::kBFloat16:
      write_halves<BFloat16>(job, i, values);
      return;
    case DType::kSplitBFloat16: {
      auto* const highs = reinterpret_cast<BFloat16*>(weights);
      std::int16_t* const lows = low_of(table, job.rows.slot(i));
      for (std::int64_t c = 0; c < table.cols; ++c) {
        const SplitBFloat16 halves = to_split_bfloat16(values[c]);
        highs[c] = halves.high;
        lows[c] = halves.low;
      }
      break;
    }
    default:
      copy_numbers(reinterpret_cast<float*>(weights), values, table.cols);
  }
  copy_numbers(reinterpret_cast<float*>(last_weights_of(job, i)), values, table.cols);
}

/// The means that were decoded, into rows and their last values; returns how many numbers stayed.
std::int64_t move_rows(const ChangeChunk& chunk, const ChangeScratch& scratch) {
  const RowChanges& job = chunk.job;
  const std::int64_t kept = add_decoded(chunk, scratch);
  chunk.for_rows([&](std::int64_t i, std::int64_t first) {
    const float* const values = scratch.moved + first;
    if (chunk.vector.part == RowCopy::Part::kWeights) {
      write_weights(job, i, values);
      return;
    }
    copy_numbers(state_of(job.table, job.rows.slot(i)) + chunk.vector.first, values,
                 chunk.vector.cols);
    copy_numbers(last_state_of(chunk, i), values, chunk.vector.cols);
  });
  return kept;
}

std::int64_t average_chunk(const ChangeChunk& chunk,
                           std::span<const std::byte* const> arrived,
                           const ChangeScratch& scratch) {
  read_values(chunk, scratch.values);
  read_last(chunk, scratch.last);
  sum_changes(chunk, arrived, scratch);
  make_means(chunk, arrived.size(), scratch);
  encode_values(chunk, scratch.values);
  decode_values(chunk, chunk.job.codes, scratch.decoded);
  const std::int64_t kept = move_rows(chunk, scratch);
  keep_lost(chunk, scratch);
  return kept;
}

/// The rows' values into the last ones.
void take_values(const RowChanges& job, Range rows) {
  const RowTable& table = job.table;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const std::int64_t slot = job.rows.slot(i);
    std::byte* const last = last_weights_of(job, i);
    if (has_halves(table.dtype)) {
      std::memcpy(last, weights_of(table, slot), at(table.cols) * sizeof(Float16));
    } else {
      read_weights(table, slot, reinterpret_cast<float*>(last));
    }
    if (job.state_floats > 0) {
      copy_numbers(job.last_state + job.rows.copy(i) * job.state_floats, state_of(table, slot),
                   job.state_floats);
    }
  }
}

/// Calls body(job, some of its rows) for tasks of all jobs; changes_of(job) are a job's rows.
template <typename Job, typename ChangesOf, typename Body>
void run_tasks(Context& ctx,
               std::span<const Job> jobs,
               const ChangesOf& changes_of,
               const Body& body) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        const std::int64_t count = changes_of(jobs[at(i)]).rows.count;
        return (count + kChangedRowsPerTask - 1) / kChangedRowsPerTask;
      },
      [&](std::int64_t i, std::int64_t task) {
        const std::int64_t first = task * kChangedRowsPerTask;
        const std::int64_t count = changes_of(jobs[at(i)]).rows.count;
        body(jobs[at(i)], Range{first, std::min(first + kChangedRowsPerTask, count)});
      });
}

const RowChanges& itself(const RowChanges& job) {
  return job;
}

/// The codec takes no random words: its scratch memory is in use here.
void check_rounding(const RowChanges& job) {
  WEFT_CHECK(job.codec.rounding == CodecRounding::kNearest, "changes are rounded to nearest");
}

}  // namespace

void cpu::encode_row_changes(Context& ctx, std::span<const RowChanges> jobs) {
  for (const RowChanges& job : jobs) {
    check_rounding(job);
  }
  run_tasks(ctx, jobs, itself, [](const RowChanges& job, Range rows) {
    const ChangeScratch scratch(job);
    for_chunks(job, rows, [&](const ChangeChunk& chunk) { encode_chunk(chunk, scratch); });
  });
}

void cpu::average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs) {
  const auto changes_of = [](const ChangeAverage& job) -> const RowChanges& { return job.changes; };
  for (const ChangeAverage& job : jobs) {
    check_rounding(job.changes);
  }
  run_tasks(ctx, jobs, changes_of, [](const ChangeAverage& job, Range rows) {
    const ChangeScratch scratch(job.changes);
    std::int64_t kept = 0;
    for_chunks(job.changes, rows, [&](const ChangeChunk& chunk) {
      kept += average_chunk(chunk, job.arrived, scratch);
    });
    add_atomically(*job.kept, kept);
  });
}

void cpu::add_row_means(Context& ctx, std::span<const RowChanges> jobs) {
  run_tasks(ctx, jobs, itself, [](const RowChanges& job, Range rows) {
    const ChangeScratch scratch(job);
    for_chunks(job, rows, [&](const ChangeChunk& chunk) {
      read_last(chunk, scratch.last);
      decode_values(chunk, job.codes, scratch.decoded);
      move_rows(chunk, scratch);
    });
  });
}

void cpu::take_row_values(Context& ctx, std::span<const RowChanges> jobs) {
  run_tasks(ctx, jobs, itself, take_values);
}

}  // namespace weft::kernels
