/// Private to comm/: adding up rows of numbers in a fixed order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"

namespace weft::comm {

// 16 KiB of floats: a few rows of one block stay in the first-level cache. A result does not
// depend on it, as every element is added on its own.
inline constexpr std::int64_t kReduceBlock = 4096;

/// to[i] = op(to[i], from[i]).
template <typename T>
void reduce_into(T* to, const T* from, std::int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] += from[i];
      }
      return;
    case ReduceOp::kMin:
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = to[i] < from[i] ? to[i] : from[i];
      }
      return;
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = to[i] > from[i] ? to[i] : from[i];
      }
      return;
  }
}

/// Calls body(Range) for blocks of [0, count), in parallel where there is a pool.
template <typename Body>
void for_blocks(ThreadPool* pool, std::int64_t count, const Body& body) {
  const std::int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  const auto run = [&](std::int64_t block) {
    body(Range{block * kReduceBlock, std::min(count, (block + 1) * kReduceBlock)});
  };
  if (pool != nullptr && blocks > 1) {
    pool->parallel_for(blocks, run);
    return;
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    run(block);
  }
}

/// Adds rows [rows][count] up the tree over rows, into row 0. Overwrites the others.
template <typename T>
void reduce_rows(ThreadPool* pool, T* data, std::int64_t rows, std::int64_t count, ReduceOp op) {
  for_blocks(pool, count, [&](Range block) {
    std::array<std::int64_t, 64> slots;  // the row that holds the sum of a tree slot
    sum_tree(
        Range{0, rows}, 0,
        [&](Range node, int depth) {
          if (node.size() == 1) {
            slots[static_cast<std::size_t>(depth)] = node.begin;
          }
          return node.size() == 1;
        },
        [&](int depth) {
          const auto slot = static_cast<std::size_t>(depth);
          reduce_into(data + slots[slot] * count + block.begin,
                      data + slots[slot + 1] * count + block.begin, block.size(), op);
        });
  });
}

}  // namespace weft::comm
