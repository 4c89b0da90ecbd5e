// A small table of which every group has a replica, and its items as numbers in fp32.
#pragma once

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weft/embedding/table_shard.h"

namespace weft::sharding {

inline constexpr std::int64_t kReplicaRows = 96;
inline constexpr std::int64_t kReplicaCols = 24;

inline spec::Table replica_table(SparseOptimizerKind kind, spec::RowDType dtype) {
  spec::Table table;
  table.name = "t";
  table.num_embeddings = kReplicaRows;
  table.embedding_dim = kReplicaCols;
  table.dtype = dtype;
  table.optimizer.type = kind;
  table.optimizer.learning_rate = 0.1;
  return table;
}

template <typename Element>
std::vector<float> read_as(const StateSource& from, std::size_t index, const StateItem& item) {
  std::vector<Element> values(
      static_cast<std::size_t>(item.held().size() * (item.col_end - item.col_begin)));
  from.read_state(index, item.row_begin, item.held().size(), values.data());
  std::vector<float> floats;
  for (const Element value : values) {
    floats.push_back(to_float(value));
  }
  return floats;
}

/// All elements of an item in fp32.
inline std::vector<float> read_item(const StateSource& from, std::size_t index) {
  const StateItem item = from.state_items()[index];
  switch (item.dtype) {
    case DType::kFloat16:
      return read_as<Float16>(from, index, item);
    case DType::kBFloat16:
      return read_as<BFloat16>(from, index, item);
    default:
      return read_as<float>(from, index, item);
  }
}

/// All rows of an item in fp32 or bf16.
inline void write_item(embedding::TableShard& shard,
                       std::size_t index,
                       const std::vector<float>& values) {
  const StateItem item = shard.state_items()[index];
  if (item.dtype == DType::kFloat32) {
    shard.write_state(index, 0, kReplicaRows, item.col_begin, item.col_end, values.data());
    return;
  }
  ASSERT_EQ(item.dtype, DType::kBFloat16);
  std::vector<BFloat16> halves;
  for (const float value : values) {
    halves.push_back(to_bfloat16(value));
  }
  shard.write_state(index, 0, kReplicaRows, item.col_begin, item.col_end, halves.data());
}

}  // namespace weft::sharding
