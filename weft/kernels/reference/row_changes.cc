// Row by row and vector by vector, number by number, as the header has it.
#include "weft/kernels/row_changes.h"

#include <cmath>
#include <limits>
#include <vector>

#include "weft/base/at.h"
#include "weft/kernels/reference/row_values.h"

namespace weft::kernels::reference {
namespace {

/// A vector of one row.
class RowVector {
 public:
  RowVector(const RowChanges& job, const ChangeVector& vector, std::int64_t index)
      : job_(job),
        vector_(vector),
        index_(index),
        row_(job.rows.row(index)),
        copy_(job.rows.copy(index)),
        slot_(job.rows.slot(index)),
        is_state_(vector.part == RowCopy::Part::kState) {
    for (const ChangeVector& before : job.vectors) {
      if (&before == &vector) {
        break;
      }
      code_ += job.rows.count * encoded_bytes(job.codec, before.cols);
    }
    code_ += index * encoded_bytes(job.codec, vector.cols);
  }

  [[nodiscard]] float value(std::int64_t c) const {
    if (is_state_) {
      return *state(c);
    }
    const float high = load_element(weights(), job_.table.dtype, c);
    return is_split() ? to_float(SplitBFloat16{to_bfloat16(high), low()[c]}) : high;
  }

  [[nodiscard]] float last(std::int64_t c) const {
    return is_state_ ? *last_state(c) : load_element(last_weights(), last_type(), c);
  }

  [[nodiscard]] float lost(std::int64_t c) const {
    return job_.lost == nullptr ? 0.0F : lost_numbers()[c];
  }

  /// Encodes numbers; returns what the code decodes to.
  [[nodiscard]] std::vector<float> pass_through_code(Context& ctx,
                                                     const std::vector<float>& numbers) const {
    const EncodeJob job{.codec = job_.codec,
                        .vectors = numbers.data(),
                        .stride = vector_.cols,
                        .count = 1,
                        .cols = vector_.cols,
                        .to = job_.codes + code_,
                        .clips = job_.clips};
    reference::encode(ctx, std::span(&job, 1));
    return decoded(ctx, job_.codes);
  }

  [[nodiscard]] std::vector<float> decoded(Context& ctx, const std::byte* codes) const {
    std::vector<float> numbers(at(vector_.cols));
    const DecodeJob job{.codec = job_.codec,
                        .from = codes + code_,
                        .vectors = numbers.data(),
                        .stride = vector_.cols,
                        .count = 1,
                        .cols = vector_.cols};
    reference::decode(ctx, std::span(&job, 1));
    return numbers;
  }

  /// What of `wanted` is not in what was decoded; `last` are the values before.
  void keep(const std::vector<float>& wanted,
            const std::vector<float>& got,
            const std::vector<float>& last) const {
    for (std::int64_t c = 0; job_.lost != nullptr && c < vector_.cols; ++c) {
      float lost = wanted[at(c)] - got[at(c)];
      const float size = std::fabs(lost);
      const bool is_small = size < std::fabs(last[at(c)]) * 0x1p-26F || size < 0x1p-120F;
      if (is_small || !std::isfinite(lost)) {
        lost = 0.0F;
      }
      lost_numbers()[c] = lost;
      if (lost != 0.0F && job_.flags != nullptr) {
        job_.flags[job_.rows.places[index_]] = 1;
      }
    }
  }

  /// Adds a decoded mean to the row; what does not fit becomes 0 there. Returns how many.
  [[nodiscard]] std::int64_t add(std::vector<float>& mean) const {
    std::int64_t kept = 0;
    for (std::int64_t c = 0; c < vector_.cols; ++c) {
      const float before = last(c);
      float next = before + mean[at(c)];
      const bool fits = is_split() ? has_finite_high_half(next) : std::isfinite(next);
      if (mean[at(c)] != 0.0F && (!fits || (vector_.squares && next < 0.0F))) {
        mean[at(c)] = 0.0F;
        ++kept;
      }
      next = mean[at(c)] == 0.0F ? before : next;
      write(c, next);
    }
    return kept;
  }

  /// Makes the values the last ones.
  void take() const {
    for (std::int64_t c = 0; c < vector_.cols; ++c) {
      if (is_state_) {
        *last_state(c) = *state(c);
      } else {
        store_element(last_weights(), last_type(), c, value(c), 0);
      }
    }
  }

  [[nodiscard]] std::vector<float> all_last() const {
    std::vector<float> numbers;
    for (std::int64_t c = 0; c < vector_.cols; ++c) {
      numbers.push_back(last(c));
    }
    return numbers;
  }

 private:
  [[nodiscard]] bool is_split() const {
    return !is_state_ && job_.table.dtype == DType::kSplitBFloat16;
  }

  [[nodiscard]] DType last_type() const { return is_split() ? DType::kFloat32 : job_.table.dtype; }

  [[nodiscard]] std::byte* weights() const {
    return static_cast<std::byte*>(job_.table.weights) + slot_ * job_.table.weight_stride;
  }

  [[nodiscard]] std::int16_t* low() const {
    return reinterpret_cast<std::int16_t*>(static_cast<std::byte*>(job_.table.low) +
                                           slot_ * job_.table.low_stride);
  }

  [[nodiscard]] float* state(std::int64_t c) const {
    auto* const row = static_cast<std::byte*>(job_.table.state) + slot_ * job_.table.state_stride;
    return reinterpret_cast<float*>(row) + vector_.first + c;
  }

  [[nodiscard]] std::byte* last_weights() const {
    return static_cast<std::byte*>(job_.last_weights) +
           copy_ * job_.table.cols * size_of(last_type());
  }

  [[nodiscard]] float* last_state(std::int64_t c) const {
    return job_.last_state + copy_ * job_.state_floats + vector_.first + c;
  }

  [[nodiscard]] float* lost_numbers() const {
    return job_.lost + copy_ * job_.lost_floats + vector_.lost;
  }

  void write(std::int64_t c, float value) const {
    if (is_state_) {
      *state(c) = *last_state(c) = value;
      return;
    }
    if (is_split()) {
      const SplitBFloat16 halves = to_split_bfloat16(value);
      reinterpret_cast<BFloat16*>(weights())[c] = halves.high;
      low()[c] = halves.low;
      store_element(last_weights(), DType::kFloat32, c, value, 0);
      return;
    }
    const std::uint32_t random = element_bits(job_.draws, job_.table, row_, job_.step, c);
    store_element(weights(), job_.table.dtype, c, value, random);
    store_element(last_weights(), job_.table.dtype, c, value, random);
  }

  const RowChanges& job_;
  const ChangeVector& vector_;
  std::int64_t index_;
  std::int64_t row_;
  std::int64_t copy_;  // where its last values are
  std::int64_t slot_;
  bool is_state_;
  std::int64_t code_ = 0;
};

/// Calls body for every vector of every row.
template <typename Body>
void for_vectors(const RowChanges& job, const Body& body) {
  for (std::int64_t i = 0; i < job.rows.count; ++i) {
    for (const ChangeVector& vector : job.vectors) {
      body(RowVector(job, vector, i), vector.cols);
    }
  }
}

}  // namespace

void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs) {
  for (const RowChanges& job : jobs) {
    for_vectors(job, [&](const RowVector& vector, std::int64_t cols) {
      std::vector<float> changes;
      for (std::int64_t c = 0; c < cols; ++c) {
        const float change = vector.value(c) - vector.last(c);
        changes.push_back(job.lost == nullptr ? change : change + vector.lost(c));
      }
      vector.keep(changes, vector.pass_through_code(ctx, changes), vector.all_last());
    });
  }
}

void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs) {
  for (const ChangeAverage& job : jobs) {
    for_vectors(job.changes, [&](const RowVector& vector, std::int64_t cols) {
      std::vector<double> sums(at(cols));
      for (std::size_t m = 0; m < job.arrived.size(); ++m) {
        const std::vector<float> others = job.arrived[m] == nullptr
                                              ? std::vector<float>(at(cols))
                                              : vector.decoded(ctx, job.arrived[m]);
        for (std::int64_t c = 0; c < cols; ++c) {
          const double term = job.arrived[m] == nullptr ? static_cast<double>(vector.value(c)) -
                                                              static_cast<double>(vector.last(c))
                                                        : static_cast<double>(others[at(c)]);
          sums[at(c)] = m == 0 ? term : sums[at(c)] + term;
        }
      }
      std::vector<float> means;
      for (std::int64_t c = 0; c < cols; ++c) {
        means.push_back(static_cast<float>(sums[at(c)] / static_cast<double>(job.arrived.size()) +
                                           static_cast<double>(vector.lost(c))));
      }
      const std::vector<float> last = vector.all_last();
      std::vector<float> decoded = vector.pass_through_code(ctx, means);
      *job.kept += vector.add(decoded);
      vector.keep(means, decoded, last);
    });
  }
}

void add_row_means(Context& ctx, std::span<const RowChanges> jobs) {
  for (const RowChanges& job : jobs) {
    for_vectors(job, [&](const RowVector& vector, std::int64_t) {
      std::vector<float> decoded = vector.decoded(ctx, job.codes);
      static_cast<void>(vector.add(decoded));
    });
  }
}

void take_row_values(Context& /*ctx*/, std::span<const RowChanges> jobs) {
  for (const RowChanges& job : jobs) {
    for_vectors(job, [](const RowVector& vector, std::int64_t) { vector.take(); });
  }
}

}  // namespace weft::kernels::reference
