/// Bytes that replica groups exchange to stay equal (weft/spec/mesh.h).
///
/// Notation: M groups, R rows of a shard of which U are touched by this group and V by any, x bytes
/// of a row with its state, D columns, T shards of a rank.
///
///   form       bytes that a rank sends per sync
///   dense      2 (M - 1)/M · Σ R x
///   touched    2 (M - 1)/M · Σ V x + (M - 1)(Σ 4 U + 8 T)
///   gradients  row_sums.h has it, of W = M ranks that hold T shards each; u are the touched rows,
///              once per whole subtree of the group's parts (1 where its run is one)
///
/// With codecs.sync x is that of the codes (coded_row_bytes), each matrix of a row's state for
/// itself, and U counts the rows too of which encoding has lost something in the syncs before. What
/// a rank then keeps is in weft/layout/replicas.h.
///
/// They are those of weft/sharding/replica_average.h and row_sync.h: exact where M divides the rows
/// of every shard. All functions are pure.
/// Source: the ring's volume of an all-reduce, as arXiv 2508.03854 counts it; direct exchanges have
/// the same.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"

namespace weft::cost {

/// x: of `cols` columns, without gaps.
double replica_row_bytes(const spec::Table& table, std::int64_t cols);

/// x where changes are encoded: of `cols` columns, held by one shard.
double coded_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs);

/// x of a job: the one or the other.
double sync_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs);

/// Returns the bytes that a rank sends to average `bytes` of rows and state.
inline double replica_average_bytes(std::int64_t groups, double bytes) {
  return 2.0 * static_cast<double>(groups - 1) / static_cast<double>(groups) * bytes;
}

/// The lists of touched: `rows` of this group in `shards` shards.
inline double touched_list_bytes(std::int64_t groups, double shards, double rows) {
  return static_cast<double>(groups - 1) * (8.0 * shards + 4.0 * rows);
}

/// Of `gradients` in all, where groups gather: `rows` partial sums of `cols` columns of one shard.
inline double group_gradient_bytes(std::int64_t groups, std::int64_t cols, double rows) {
  return static_cast<double>(groups - 1) * (8.0 + (12.0 + 4.0 * static_cast<double>(cols)) * rows);
}

}  // namespace weft::cost
