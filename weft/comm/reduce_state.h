/// The residuals of an all-reduce with error feedback as state that is saved, restored and hashed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::comm {

/// Two matrices of `count` columns: kind "partial_residual", a row for every partial sum of a rank
/// (hierarchical form: of a host), and kind "sum_residual", one row. Which rank holds what, and
/// what the rows stand for, follows from ranks, parts and hosts (residual_layout()). Refers to its
/// arguments, which outlive it. Reads and writes go through the device's copies.
class ReduceState final : public StateSource, public StateSink {
 public:
  /// `parameter`: the name of both items.
  ReduceState(const OrderedAllReduce& reduce, Device& device, std::string parameter);

  /// Empty without error feedback.
  [[nodiscard]] std::vector<StateItem> state_items() const override;
  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override;
  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override;

 private:
  [[nodiscard]] ResidualBlock block(std::size_t index) const;

  const OrderedAllReduce& reduce_;
  Device& device_;
  std::string parameter_;
};

/// What residuals belong to besides the model, as a text: the codec, the ranks and, where sums are
/// added inside hosts, the host of every rank. Equal on all ranks; with equal texts residuals may
/// be taken over.
std::string residual_layout(const Communicator& communicator, const ReduceCodec& codec);

}  // namespace weft::comm
