// Coalesced entries and tables for parity lists, on the host and on a device
// (tests/kernels/parity.h).
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/coalesce.h"

namespace weft::kernels::test {

/// The entries of a step of one table.
class RunsCase {
 public:
  /// Two features of the shape. Where rows are `scattered`, their slots are not their numbers.
  RunsCase(Random& random, const BagsShape& shape, bool scattered = false) {
    add(make_bags(random, shape));
    add(make_bags(random, shape));
    coalesce(shape.rows, shape.parts, scattered);
  }

  RunsCase(BagsCase bags, std::int64_t rows, std::int64_t parts) {
    add(std::move(bags));
    coalesce(rows, parts, false);
  }

  RunsCase(const RunsCase&) = delete;
  RunsCase& operator=(const RunsCase&) = delete;

  /// For the plain loops.
  [[nodiscard]] const RowRuns& host() const { return runs_; }

  /// Returns the same in the memory of a device.
  RowRuns place(Context& ctx) {
    std::vector<const float*> there;
    std::vector<const float*> bases;
    for (Copied<float>& one : gradients_) {
      bases.push_back(one.place(ctx));
    }
    for (std::size_t e = 0; e < entry_feature_.size(); ++e) {
      const std::size_t f = entry_feature_[e];
      there.push_back(bases[f] + (runs_.grads[e] - gradients_[f].values().data()));
    }
    addresses_ = Copied(there);
    RowRuns placed = runs_;
    placed.rows = rows_.place(ctx);
    placed.slots = slots_.place(ctx);
    placed.row_segments = row_segments_.place(ctx);
    placed.segment_entries = segment_entries_.place(ctx);
    placed.segment_parts = segment_parts_.place(ctx);
    placed.grads = addresses_.place(ctx);
    placed.weights = runs_.weights == nullptr ? nullptr : weights_.place(ctx);
    return placed;
  }

  /// Values of a feature's gradients, to be changed before place().
  [[nodiscard]] float* gradients(std::size_t feature) { return gradients_[feature].host(); }

 private:
  void add(BagsCase bags) {
    gradients_.emplace_back(std::move(bags.grads));
    bags_.push_back(std::move(bags));
  }

  void coalesce(std::int64_t rows, std::int64_t parts, bool scattered) {
    std::vector<GradientBlock> blocks;
    for (std::size_t f = 0; f < bags_.size(); ++f) {
      blocks.push_back(bags_[f].block());
      blocks.back().grads = gradients_[f].host();
    }
    Context ctx;
    const CoalesceJob job{
        .blocks = blocks, .rows = rows, .parts = parts, .buffers = &buffers_, .runs = &runs_};
    reference::coalesce(ctx, std::span(&job, 1));
    const auto copy = [](const auto* from, std::int64_t count) {
      return Copied(std::vector(from, from + count));
    };
    rows_ = copy(runs_.rows, runs_.num_rows);
    std::vector<std::int64_t> slots = rows_.values();
    for (std::int64_t& slot : slots) {
      slot = scattered ? rows - 1 - slot : slot;
    }
    slots_ = Copied(slots);
    runs_.slots = slots_.values().data();
    row_segments_ = copy(runs_.row_segments, runs_.num_rows + 1);
    segment_entries_ = copy(runs_.segment_entries, runs_.num_segments + 1);
    segment_parts_ = copy(runs_.segment_parts, runs_.num_segments);
    if (runs_.weights != nullptr) {
      weights_ = copy(runs_.weights, runs_.num_entries);
    }
    for (std::int64_t e = 0; e < runs_.num_entries; ++e) {
      std::size_t f = 0;
      while (runs_.grads[e] < gradients_[f].values().data() ||
             runs_.grads[e] >= gradients_[f].values().data() + gradients_[f].values().size()) {
        ++f;
      }
      entry_feature_.push_back(f);
    }
  }

  std::unique_ptr<Device> device_ = make_device({});
  RunBuffers buffers_{*device_};
  std::deque<BagsCase> bags_;
  std::deque<Copied<float>> gradients_;
  std::vector<std::size_t> entry_feature_;
  RowRuns runs_;
  Copied<std::int64_t> rows_, slots_;
  Copied<std::int32_t> row_segments_, segment_entries_, segment_parts_;
  Copied<const float*> addresses_;
  Copied<float> weights_;
};

/// A table for the plain loops, and a copy of it on a device.
class TableCopies {
 public:
  explicit TableCopies(TableCase& table)
      : table_(table), weights_(table.weights), state_(table.state), low_(table.low) {}

  /// The view of the plain loops.
  [[nodiscard]] RowTable host() { return moved(weights_.host(), state_.host(), low_.host()); }

  RowTable place(Context& ctx) {
    weights_.place(ctx);
    state_.place(ctx);
    low_.place(ctx);
    return moved(weights_.placed(), state_.placed(), low_.placed());
  }

  [[nodiscard]] bool same_bits(Context& ctx) const {
    return weights_.same_bits(ctx) && state_.same_bits(ctx) && low_.same_bits(ctx);
  }

 private:
  /// State and low halves lie in the rows, or in memory of their own.
  RowTable moved(std::byte* weights, std::byte* state, std::byte* low) const {
    RowTable view = table_.view;
    const auto place = [&](void* at, const std::vector<std::byte>& own, std::byte* there) -> void* {
      if (at == nullptr) {
        return nullptr;
      }
      return own.empty() ? weights + (static_cast<std::byte*>(at) - table_.weights.data()) : there;
    };
    view.weights = weights;
    view.state = place(table_.view.state, table_.state, state);
    view.low = place(table_.view.low, table_.low, low);
    return view;
  }

  TableCase& table_;
  Copied<std::byte> weights_, state_, low_;
};

}  // namespace weft::kernels::test
