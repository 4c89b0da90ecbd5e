#include "weft/checkpoint/state_hash.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/thread_pool.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/element_hash.h"
#include "weft/checkpoint/listed_rows.h"
#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {
namespace {

/// A row by list costs more than one in order: where more than 1 / kMostWritten of the rows are
/// written, all are looked at.
constexpr std::int64_t kMostWritten = 2;

/// Rows of one item of one source: what a thread hashes at a time.
struct Task {
  const StateSource* source = nullptr;
  const StateItem* item = nullptr;
  std::size_t index = 0;  ///< of the item in its source
  std::size_t slot = 0;   ///< which sum it belongs to
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

std::uint64_t hash_task(const Task& task, const RowsInPlace& values, const std::byte* initial) {
  return hash_rows(
      HashedRows{*task.item, task.rows,
                 [&task](std::int64_t r) { return task.row_begin + r * task.item->row_step; }},
      values, {initial, item_row_bytes(*task.item)});
}

void add_tasks(std::vector<Task>& tasks,
               const StateSource& source,
               const StateItem& item,
               std::size_t index,
               std::size_t slot) {
  if (item_row_bytes(item) == 0) {
    return;
  }
  const std::int64_t step = std::max<std::int64_t>(1, kHashTaskBytes / item_row_bytes(item));
  const RowSet held = item.held();
  for (std::int64_t i = 0; i < held.size(); i += step) {
    tasks.push_back({&source, &item, index, slot, held.row(i), std::min(step, held.size() - i)});
  }
}

/// One thread's share: takes tasks until none is left. Sums modulo 2^64 have no order.
void work(const std::vector<Task>& tasks,
          const InitialValues& initial,
          std::atomic<std::size_t>& next,
          std::vector<std::atomic<std::uint64_t>>& sums,
          WorkProgress& progress) {
  std::vector<std::byte> values;
  std::vector<std::byte> start;
  for (std::size_t i = next++; i < tasks.size(); i = next++) {
    const Task& task = tasks[i];
    const auto bytes = static_cast<std::size_t>(task.rows * item_row_bytes(*task.item));
    RowsInPlace rows = task.source->rows_in_place(task.index, task.row_begin, task.rows);
    if (rows.begin == nullptr) {
      values.resize(std::max(values.size(), bytes));
      task.source->read_state(task.index, task.row_begin, task.rows, values.data());
      rows = {values.data(), item_row_bytes(*task.item)};
    }
    bool has_initial = false;
    if (initial) {
      start.resize(std::max(start.size(), bytes));
      has_initial = initial(*task.item, task.row_begin, task.rows, start.data());
    }
    sums[task.slot] += hash_task(task, rows, has_initial ? start.data() : nullptr);
    progress.add(static_cast<std::int64_t>(bytes));
  }
}

std::vector<std::uint64_t> run_tasks(Context& ctx,
                                     const std::vector<Task>& tasks,
                                     const InitialValues& initial,
                                     std::size_t slots,
                                     WorkProgress& progress) {
  std::int64_t total = 0;
  for (const Task& task : tasks) {
    total += task.rows * item_row_bytes(*task.item);
  }
  progress.begin({.activity = "hashing", .place = "its state", .total = total});
  std::vector<std::atomic<std::uint64_t>> sums(slots);
  std::atomic<std::size_t> next = 0;
  if (ctx.pool == nullptr) {
    work(tasks, initial, next, sums, progress);
  } else {
    ctx.pool->parallel_for(ctx.pool->threads(),
                           [&](std::int64_t) { work(tasks, initial, next, sums, progress); });
  }
  return {sums.begin(), sums.end()};
}

using ItemLists = std::vector<std::vector<StateItem>>;

ItemLists all_items(std::span<const StateSource* const> sources) {
  ItemLists lists;
  for (const StateSource* source : sources) {
    lists.push_back(source->state_items());
  }
  return lists;
}

/// Which block of which item, as it travels.
struct BlockName {
  std::uint64_t item = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
  std::int64_t row_step = 1;

  friend auto operator<=>(const BlockName&, const BlockName&) = default;
};

struct BlockHash {
  BlockName name;
  std::uint64_t hash = 0;
  std::int64_t rank = 0;
  std::int64_t first_holder = 0;
};

BlockName block_name(const StateItem& item) {
  return {item_key(item), item.row_begin, item.row_end,
          item.col_begin, item.col_end,   item.row_step};
}

/// The lists of all ranks as one, ascending and each element once: that of the lowest rank which
/// has it. Up the tree of ranks and down, so that what many ranks have travels once. Collective.
template <typename T, typename Less>
std::vector<T> union_of_all(comm::Communicator& comm,
                            Context& ctx,
                            std::vector<T> own,
                            const Less& less) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto to_list = [](std::span<const std::byte> bytes) {
    std::vector<T> list(bytes.size() / sizeof(T));
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(list)).begin());
    return list;
  };
  const auto to_bytes = [](const std::vector<T>& list) {
    const auto bytes = std::as_bytes(std::span(list));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  std::stable_sort(own.begin(), own.end(), less);
  const auto same = [&](const T& a, const T& b) { return !less(a, b) && !less(b, a); };
  own.erase(std::unique(own.begin(), own.end(), same), own.end());
  std::vector<std::byte> all = comm.merge_to_first(
      ctx, to_bytes(own), [&](std::vector<std::byte>& block, std::span<const std::byte> later) {
        const std::vector<T> first = to_list(block);
        const std::vector<T> second = to_list(later);
        std::vector<T> both;
        both.reserve(first.size() + second.size());
        std::set_union(first.begin(), first.end(), second.begin(), second.end(),
                       std::back_inserter(both), less);
        block = to_bytes(both);
      });
  comm.share(ctx, all, 0);
  return to_list(all);
}

/// Names of the blocks of which some rank holds a copy.
std::set<BlockName> copied_blocks(comm::Communicator& comm, Context& ctx, const ItemLists& lists) {
  std::vector<BlockName> own;
  for (const auto& items : lists) {
    for (const StateItem& item : items) {
      if (!item.first_holder) {
        own.push_back(block_name(item));
      }
    }
  }
  const auto all = union_of_all(comm, ctx, std::move(own), std::less<BlockName>());
  return {all.begin(), all.end()};
}

/// Throws where a copy of this rank differs from its first holder's block.
void check_copies(const ItemLists& lists,
                  const std::map<BlockName, BlockHash>& first,
                  const std::map<BlockName, std::uint64_t>& own,
                  int rank) {
  for (const auto& items : lists) {
    for (const StateItem& item : items) {
      if (item.first_holder) {
        continue;
      }
      const auto found = first.find(block_name(item));
      if (found == first.end()) {
        fail(ErrorCode::kInternal,
             "rank {} holds a copy of {} rows [{}, {}) columns [{}, {}) of which no rank is first "
             "holder: this is a bug, please report it",
             rank, item_name(item.parameter, item.kind), item.row_begin, item.row_end,
             item.col_begin, item.col_end);
      }
      const std::uint64_t hash = own.at(block_name(item));
      if (hash != found->second.hash) {
        fail(ErrorCode::kInternal,
             "{} rows [{}, {}) columns [{}, {}) differ between rank {} (hash {:016x}) and rank {} "
             "({:016x}), which must hold the same bits: training on would not be reproducible; "
             "this is a bug or a hardware fault, resume from a checkpoint",
             item_name(item.parameter, item.kind), item.row_begin, item.row_end, item.col_begin,
             item.col_end, found->second.rank, found->second.hash, rank, hash);
      }
    }
  }
}

}  // namespace

std::uint64_t item_key(const StateItem& item) {
  const std::uint64_t named = hash_combine(hash_string(item.parameter), hash_string(item.kind));
  return hash_combine(named, hash_string(to_string(item.dtype)));
}

namespace {

/// What is hashed: ranges of rows, and rows by list.
struct HashWork {
  std::vector<Task>& tasks;
  std::vector<ListedRows>& listed;
};

/// Whether only rows that somebody has written need be looked at, and so few are that listing them
/// pays. `initial` has to know the initial values of all items, or every element counts.
bool hashes_written(const RowState& rows,
                    const std::vector<StateItem>& items,
                    const InitialValues& initial) {
  const std::optional<std::int64_t> written = rows.written_rows();
  const RowState::Shape shape = rows.row_shape();
  if (!initial || !written || *written * kMostWritten > shape.rows.size() ||
      shape.items != std::ssize(items)) {
    return false;
  }
  return std::all_of(items.begin(), items.end(), [&](const StateItem& item) {
    return initial(item, item.row_begin, 0, nullptr);
  });
}

/// Adds the items of a source that belong to sums, slots[i] of item i.
void add_source(Context& ctx,
                const StateSource& source,
                const std::vector<StateItem>& items,
                const std::vector<std::size_t>& slots,
                const InitialValues& initial,
                const HashWork& to) {
  const RowState* const rows = source.row_state();
  if (rows != nullptr && rows->is_sparse()) {
    to.listed.emplace_back(ctx, *rows, ListOf::kExisting, items, slots);
    return;
  }
  if (rows != nullptr && hashes_written(*rows, items, initial)) {
    to.listed.emplace_back(ctx, *rows, ListOf::kWritten, items, slots);
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (slots[i] != kNoSum) {
      add_tasks(to.tasks, source, items[i], i, slots[i]);
    }
  }
}

StateHash hash_own(Context& ctx,
                   std::span<const StateSource* const> sources,
                   const InitialValues& initial,
                   WorkProgress& progress) {
  const ItemLists lists = all_items(sources);
  std::vector<Task> tasks;
  std::vector<ListedRows> listed;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    std::vector<std::size_t> slots;  // of weights, and of state
    for (const StateItem& item : lists[s]) {
      slots.push_back(!item.first_holder ? kNoSum : item.kind == "weight" ? 0 : 1);
    }
    add_source(ctx, *sources[s], lists[s], slots, initial, {tasks, listed});
  }
  auto sums = run_tasks(ctx, tasks, initial, 2, progress);
  add_listed(ctx, listed, sums, progress);
  return {sums[0], sums[0] + sums[1]};
}

}  // namespace

StateHash hash_state(Context& ctx,
                     std::span<const StateSource* const> sources,
                     const InitialValues& initial) {
  WorkProgress progress;
  return hash_own(ctx, sources, initial, progress);
}

StateHash hash_state(comm::Communicator& comm,
                     Context& ctx,
                     std::span<const StateSource* const> sources,
                     const InitialValues& initial) {
  StateHash own;
  agree(comm, ctx,
        [&](WorkProgress& progress) { own = hash_own(ctx, sources, initial, progress); });
  std::vector<StateHash> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ctx, &own, all.data(), sizeof(StateHash));
  StateHash sum;
  for (const StateHash& one : all) {
    sum.weights += one.weights;
    sum.state += one.state;
  }
  return sum;
}

void compare_replicas(comm::Communicator& comm,
                      Context& ctx,
                      std::span<const StateSource* const> sources) {
  const ItemLists lists = all_items(sources);
  const std::set<BlockName> copied = copied_blocks(comm, ctx, lists);
  if (copied.empty()) {
    return;
  }
  const int rank = comm.world_rank(comm.rank());  // for messages
  std::vector<Task> tasks;
  std::vector<ListedRows> listed;  // all copies of such a block are by list, and so is their hash
  std::vector<BlockHash> own;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    std::vector<std::size_t> slots;
    for (const StateItem& item : lists[s]) {
      const BlockName name = block_name(item);
      slots.push_back(copied.contains(name) ? own.size() : kNoSum);
      if (slots.back() != kNoSum) {
        own.push_back({name, 0, rank, item.first_holder ? 1 : 0});
      }
    }
    if (std::any_of(slots.begin(), slots.end(), [](std::size_t slot) { return slot != kNoSum; })) {
      add_source(ctx, *sources[s], lists[s], slots, {}, {tasks, listed});
    }
  }
  std::map<BlockName, std::uint64_t> own_hashes;
  agree(comm, ctx, [&](WorkProgress& progress) {
    auto sums = run_tasks(ctx, tasks, {}, own.size(), progress);
    add_listed(ctx, listed, sums, progress);
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i].hash = sums[i];
      own_hashes[own[i].name] = sums[i];
    }
  });
  std::map<BlockName, BlockHash> first;
  std::erase_if(own, [](const BlockHash& block) { return block.first_holder == 0; });
  for (const BlockHash& block :
       union_of_all(comm, ctx, std::move(own),
                    [](const BlockHash& a, const BlockHash& b) { return a.name < b.name; })) {
    first.emplace(block.name, block);
  }
  agree(comm, ctx,
        [&](WorkProgress& /*progress*/) { check_copies(lists, first, own_hashes, rank); });
}

}  // namespace weft::checkpoint
