#include "weft/sharding/hot_rows.h"

#include <cstddef>
#include <span>

#include "weft/base/at.h"
#include "weft/tensor/dtype.h"

namespace weft::sharding {
namespace {

using embedding::TableShard;

/// An item of the hot rows' state, and the columns of it that one shard has.
struct Columns {
  std::size_t item = 0;
  Range cols;
  std::int64_t element_bytes = 0;
  std::int64_t item_cols = 0;

  [[nodiscard]] std::int64_t bytes() const { return cols.size() * element_bytes; }
};

/// Every shard has its own copy of what is one number per row.
std::vector<Columns> columns_of(const TableShard& hot, Range cols) {
  std::vector<Columns> all;
  for (const StateItem& item : hot.state_items()) {
    all.push_back({.item = all.size(),
                   .cols = item.cols == 1 ? Range{0, 1} : cols,
                   .element_bytes = size_of(item.dtype),
                   .item_cols = item.cols});
  }
  return all;
}

/// Calls visit(columns, place among the hot rows, row) for what a shard has of their state.
template <typename Visit>
void for_each_row(const TableShard& hot, const spec::Shard& shard, const Visit& visit) {
  const std::span<const std::int64_t> list = hot.row_list();
  for (const Columns& columns : columns_of(hot, shard.cols)) {
    for (std::size_t place = 0; place < list.size(); ++place) {
      if (shard.rows.contains(list[place])) {
        visit(columns, static_cast<std::int64_t>(place), list[place]);
      }
    }
  }
}

}  // namespace

void store_hot(const HotTable& table) {
  std::vector<std::byte> row;
  for (std::size_t k = 0; k < table.shards.size(); ++k) {
    TableShard* const shard = table.shards[k];
    if (shard == nullptr) {
      continue;
    }
    for_each_row(*table.hot, table.plan->shards[k],
                 [&](const Columns& columns, std::int64_t place, std::int64_t number) {
                   row.resize(at(columns.item_cols * columns.element_bytes));
                   table.hot->read_state(columns.item, place, 1, row.data());
                   shard->write_state(columns.item, number, 1, columns.cols.begin, columns.cols.end,
                                      row.data() + columns.cols.begin * columns.element_bytes);
                 });
  }
}

void load_hot(comm::Communicator& comm, Context& ctx, const HotTable& table) {
  std::vector<std::int64_t> bytes(at(comm.size()));
  std::vector<std::byte> own;
  for (std::size_t k = 0; k < table.shards.size(); ++k) {
    const spec::Shard& shard = table.plan->shards[k];
    for_each_row(*table.hot, shard,
                 [&](const Columns& columns, std::int64_t /*place*/, std::int64_t number) {
                   bytes[at(shard.rank)] += columns.bytes();
                   if (table.shards[k] != nullptr) {
                     own.resize(own.size() + at(columns.bytes()));
                     table.shards[k]->read_state(columns.item, number, 1,
                                                 own.data() + own.size() - columns.bytes());
                   }
                 });
  }
  std::int64_t total = 0;
  std::vector<std::int64_t> begins;  // of each rank's rows, then of what is not read yet
  for (const std::int64_t one : bytes) {
    begins.push_back(total);
    total += one;
  }
  std::vector<std::byte> all(at(total));
  comm.all_gather_v(ctx, {.send = own.data(),
                          .send_bytes = static_cast<std::int64_t>(own.size()),
                          .recv = all.data(),
                          .recv_bytes = bytes});
  for (const spec::Shard& shard : table.plan->shards) {
    std::int64_t& next = begins[at(shard.rank)];
    for_each_row(*table.hot, shard,
                 [&](const Columns& columns, std::int64_t place, std::int64_t /*number*/) {
                   table.hot->write_state(columns.item, place, 1, columns.cols.begin,
                                          columns.cols.end, all.data() + next);
                   next += columns.bytes();
                 });
  }
}

}  // namespace weft::sharding
