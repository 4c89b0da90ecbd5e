/// Tables in memory whose rows are state by list: dense ones, and those that hold rows that exist.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/file_store.h"
#include "tests/checkpoint/memory_state.h"
#include "weft/checkpoint/row_shard.h"

namespace weft::checkpoint {

/// The state beside the weights of a row.
enum class RowExtra { kNone, kOfRow, kOfElement };

/// A table of the job.
struct Table {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kFloat32;  ///< as it lies
  RowExtra extra = RowExtra::kNone;
  InitialRule initial = {"uniform", 77, 0.5F, 0.25F};
};

inline std::vector<Table> small_tables() {
  return {{"rows.a", 60, 20, DType::kFloat32, RowExtra::kOfRow},
          {"rows.b", 7, 48, DType::kSplitBFloat16, RowExtra::kOfElement},
          {"rows.c", 300, 6, DType::kBFloat16, RowExtra::kNone},
          {"rows.d", 1, 1100, DType::kFloat32, RowExtra::kOfElement}};
}

/// How often each row of each table was changed: what the values must be. Version 0 is initial.
using Versions = std::map<std::pair<std::string, std::int64_t>, int>;

inline int version_of(const Versions& versions, const std::string& table, std::int64_t row) {
  const auto found = versions.find({table, row});
  return found == versions.end() ? 0 : found->second;
}

/// A block of a table.
class MemoryRows final : public StateSource, public StateSink, public RowState {
 public:
  struct Place {
    RowSet rows;
    Range cols;
    bool first_holder = true;
    bool sparse = false;
  };

  MemoryRows(Table table, const Place& place) : table_(std::move(table)), place_(place) {
    StateItem item{table_.name,    "weight",           dtype_of_weights(), table_.rows,
                   table_.cols,    place.rows.begin,   place.rows.end,     place.cols.begin,
                   place.cols.end, place.first_holder, place.rows.step};
    items_.push_back(item);
    item.dtype = DType::kFloat32;
    if (table_.extra == RowExtra::kOfElement) {
      for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
        item.kind = kind;
        items_.push_back(item);
      }
    } else if (table_.extra == RowExtra::kOfRow) {
      item.kind = "sum";
      item.cols = 1;
      item.col_begin = 0;
      item.col_end = 1;
      item.first_holder = place.first_holder && place.cols.begin == 0;
      items_.push_back(item);
    }
    if (!place.sparse) {
      for (std::int64_t i = 0; i < place.rows.size(); ++i) {
        rows_[place.rows.row(i)] = values(place.rows.row(i), 0);
      }
    }
  }

  /// Rows lie in files of the store from when they are given to it.
  void use_store(FileStore& store) {
    const StoredTable table = describe_rows(row_shape(), items_);
    store_ = &store;
    stream_ = store.add({stream_key(table, table.streams.front()), row_bytes()});
  }

  /// Gives the store the changed rows that `leaves` says.
  void write_back(const std::function<bool(std::int64_t row)>& leaves) {
    for (auto row = unwritten_.begin(); row != unwritten_.end();) {
      if (leaves(*row)) {
        give_to_store(*row);
        row = unwritten_.erase(row);
      } else {
        ++row;
      }
    }
  }

  /// An update of those of the rows that are held.
  void update(std::int64_t row, int version) {
    if (place_.rows.contains(row)) {
      rows_[row] = values(row, version);
      changed_.insert(row);
      unwritten_.insert(row);
    }
  }

  /// How many rows do not have their values.
  [[nodiscard]] std::int64_t differences(const Versions& versions) const {
    std::int64_t count = 0;
    const auto check = [&](std::int64_t row) {
      count += values_of(row) == values(row, version_of(versions, table_.name, row)) ? 0 : 1;
    };
    if (place_.rows.size() <= 100'000) {
      for (std::int64_t i = 0; i < place_.rows.size(); ++i) {
        check(place_.rows.row(i));
      }
      return count;
    }
    for (const auto& [key, version] : versions) {
      if (key.first == table_.name && place_.rows.contains(key.second)) {
        check(key.second);
      }
    }
    return count;
  }

  [[nodiscard]] std::int64_t existing() const { return static_cast<std::int64_t>(rows_.size()); }

  [[nodiscard]] const Table& table() const { return table_; }

  [[nodiscard]] std::int64_t rows_read() const { return rows_read_; }

  [[nodiscard]] std::vector<StateItem> state_items() const override { return items_; }

  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override {
    const std::int64_t bytes = item_bytes(index);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = values_of(row_begin + r * place_.rows.step);
      std::memcpy(static_cast<std::byte*>(out) + r * bytes, row.data() + offset(index),
                  static_cast<std::size_t>(bytes));
    }
  }

  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override {
    const StateItem& item = items_[index];
    WEFT_CHECK(item.held().contains(row_begin) && item.col_begin <= col_begin &&
               col_end <= item.col_end);
    const std::int64_t size = size_of(item.dtype);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = row_begin + r * item.row_step;
      auto value = values_of(row);
      std::memcpy(value.data() + offset(index) + (col_begin - item.col_begin) * size,
                  static_cast<const std::byte*>(in) + r * (col_end - col_begin) * size,
                  static_cast<std::size_t>((col_end - col_begin) * size));
      rows_[row] = std::move(value);
      changed_.insert(row);
      unwritten_.insert(row);
    }
  }

  [[nodiscard]] const RowState* row_state() const override { return this; }

  [[nodiscard]] RowState* row_sink() override { return this; }

  [[nodiscard]] Shape row_shape() const override {
    const std::int64_t state = row_bytes() - item_bytes(0);
    const auto form = table_.dtype == DType::kSplitBFloat16 ? layout::ElementForm::kHalves
                      : table_.dtype == DType::kFloat32     ? layout::ElementForm::kWord
                                                            : layout::ElementForm::kHalf;
    return {.parameter = table_.name,
            .first_item = 0,
            .items = static_cast<std::int64_t>(items_.size()),
            .rows = place_.rows,
            .cols = place_.cols,
            .dtype = table_.dtype,
            .packed = layout::packed_row(form, place_.cols.size(), state / 4),
            .first_holder = place_.first_holder,
            .initial = table_.initial};
  }

  [[nodiscard]] bool is_sparse() const override { return place_.sparse; }

  /// In spans of odd lengths.
  void for_each_row(StateRows which, const StateRowsVisitor& visit) const override {
    std::vector<std::int64_t> rows;
    const bool of_changed = which == StateRows::kChanged || which == StateRows::kChangedUnwritten;
    if (store_ != nullptr &&
        (which == StateRows::kUnwritten || which == StateRows::kChangedUnwritten)) {
      std::copy_if(unwritten_.begin(), unwritten_.end(), std::back_inserter(rows),
                   [&](std::int64_t row) { return !of_changed || changed_.contains(row); });
    } else if (of_changed) {
      rows.assign(changed_.begin(), changed_.end());
    } else {
      for (const auto& [row, value] : rows_) {
        rows.push_back(row);
      }
    }
    for (std::size_t i = 0; i < rows.size(); i += 37) {
      visit(std::span(rows).subspan(i, std::min<std::size_t>(37, rows.size() - i)));
    }
  }

  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override {
    for (const std::int64_t row : rows) {
      ++rows_read_;
      const auto value = values_of(row);
      pack(value, packed);
      packed += row_bytes();
    }
  }

  void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const override {
    for (const std::int64_t row : rows) {
      pack(values(row, 0), packed);
      packed += row_bytes();
    }
  }

  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override {
    WEFT_CHECK(std::is_sorted(rows.begin(), rows.end()));
    for (const std::int64_t row : rows) {
      WEFT_CHECK(place_.rows.contains(row));
      rows_[row] = unpack(packed);
      changed_.insert(row);
      unwritten_.erase(row);
      give_to_store(row);
      packed += row_bytes();
    }
  }

  [[nodiscard]] RowFiles* files() const override { return store_; }

  void mark() override { changed_.clear(); }

  /// Copies all rows at once.
  std::unique_ptr<RowCut> cut(StateRows which, CopyRoom&) override {
    class Copies final : public RowCut {
     public:
      Rows all;

      bool take_copies(Rows&) override { return false; }

      bool take(std::int64_t most, Rows& rows) override {
        const auto left = std::ssize(all.numbers) - taken_;
        const std::int64_t count = std::min<std::int64_t>(most, left);
        if (count == 0) {
          return false;
        }
        const std::int64_t bytes = std::ssize(all.packed) / std::ssize(all.numbers);
        rows.numbers.assign(all.numbers.begin() + taken_, all.numbers.begin() + taken_ + count);
        rows.packed.assign(all.packed.begin() + taken_ * bytes,
                           all.packed.begin() + (taken_ + count) * bytes);
        taken_ += count;
        return true;
      }

     private:
      std::int64_t taken_ = 0;
    };

    auto copies = std::make_unique<Copies>();
    for_each_row(which, [&](std::span<const std::int64_t> rows) {
      copies->all.numbers.insert(copies->all.numbers.end(), rows.begin(), rows.end());
    });
    copies->all.packed.resize(copies->all.numbers.size() * static_cast<std::size_t>(row_bytes()));
    read_rows(copies->all.numbers, copies->all.packed.data());
    mark();
    return copies;
  }

 private:
  using Values = std::vector<std::byte>;

  void give_to_store(std::int64_t row) {
    if (store_ != nullptr) {
      std::vector<std::byte> packed(static_cast<std::size_t>(row_bytes()));
      pack(values_of(row), packed.data());
      store_->write(stream_, row, std::move(packed));
    }
  }

  [[nodiscard]] DType dtype_of_weights() const {
    return table_.dtype == DType::kSplitBFloat16 ? DType::kFloat32 : table_.dtype;
  }

  [[nodiscard]] std::int64_t item_bytes(std::size_t index) const {
    return (items_[index].col_end - items_[index].col_begin) * size_of(items_[index].dtype);
  }

  [[nodiscard]] std::int64_t offset(std::size_t index) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < index; ++i) {
      sum += item_bytes(i);
    }
    return sum;
  }

  [[nodiscard]] std::int64_t row_bytes() const { return offset(items_.size()); }

  /// All items of a row, one after the other: a pure function of the whole matrix.
  [[nodiscard]] Values values(std::int64_t row, int version) const {
    Values out;
    for (const StateItem& item : items_) {
      const std::uint64_t key = version == 0 ? table_.initial.key : 0;
      const std::uint64_t seed = seed_of(item) + static_cast<std::uint64_t>(version) * 31 + key;
      for (std::int64_t c = item.col_begin; c < item.col_end; ++c) {
        for (std::int64_t b = 0; b < size_of(item.dtype); ++b) {
          out.push_back(std::byte{byte_at(seed, row * item.cols + c, b)});
        }
      }
    }
    return out;
  }

  [[nodiscard]] Values values_of(std::int64_t row) const {
    const auto found = rows_.find(row);
    return found == rows_.end() ? values(row, 0) : found->second;
  }

  void pack(const Values& value, std::byte* packed) const {
    std::memcpy(packed, value.data(), value.size());
    for (std::int64_t c = 0; table_.dtype == DType::kSplitBFloat16 && c < place_.cols.size(); ++c) {
      float word = 0;
      std::memcpy(&word, value.data() + 4 * c, sizeof word);
      const SplitBFloat16 halves = to_split_bfloat16(word);
      std::memcpy(packed + 2 * c, &halves.high, 2);
      std::memcpy(packed + 2 * (place_.cols.size() + c), &halves.low, 2);
    }
  }

  [[nodiscard]] Values unpack(const std::byte* packed) const {
    Values value(packed, packed + row_bytes());
    for (std::int64_t c = 0; table_.dtype == DType::kSplitBFloat16 && c < place_.cols.size(); ++c) {
      SplitBFloat16 halves;
      std::memcpy(&halves.high, packed + 2 * c, 2);
      std::memcpy(&halves.low, packed + 2 * (place_.cols.size() + c), 2);
      const float word = to_float(halves);
      std::memcpy(value.data() + 4 * c, &word, sizeof word);
    }
    return value;
  }

  Table table_;
  Place place_;
  std::vector<StateItem> items_;
  std::map<std::int64_t, Values> rows_;  ///< those that exist
  std::set<std::int64_t> changed_;
  FileStore* store_ = nullptr;
  std::size_t stream_ = 0;
  std::set<std::int64_t> unwritten_;  ///< changed, and not given to the store
  mutable std::int64_t rows_read_ = 0;
};

/// Whether tables hold all rows, or those that exist; or some of them so, drawn by the layout.
enum class Holding { kDense, kSparse, kDrawn };

/// A rank's tables.
using RankTables = std::vector<std::unique_ptr<MemoryRows>>;

/// What rank `rank` of `ranks` holds under a layout drawn from `seed`: one owner, ranges or every
/// n-th row, columns, a grid of rows and columns, or copies.
inline RankTables make_tables(
    const std::vector<Table>& tables, std::uint32_t seed, int ranks, int rank, Holding holding) {
  std::mt19937 random(seed);  // the same draws on all ranks
  RankTables out;
  for (const Table& table : tables) {
    const auto how = random() % 6;
    const auto owner = static_cast<std::int64_t>(random() % static_cast<unsigned>(ranks));
    const bool drawn = random() % 2 == 0;
    const std::int64_t place = (rank + owner) % ranks;
    MemoryRows::Place at{.rows = {0, table.rows}, .cols = {0, table.cols}};
    at.sparse = holding == Holding::kSparse || (holding == Holding::kDrawn && drawn);
    if (how == 0 && rank != owner) {
      continue;
    }
    if (how == 1) {
      at.rows = piece(table.rows, ranks, rank);
    }
    if (how == 2) {
      const std::int64_t count = std::min<std::int64_t>(ranks, table.rows);
      if (place >= count) {
        continue;
      }
      at.rows = {place, table.rows, count};
    }
    if (how == 3) {
      at.cols = piece(table.cols, ranks, place);
    }
    if (how == 4 && ranks % 2 == 0) {
      at.rows = piece(table.rows, ranks / 2, place / 2);
      at.cols = piece(table.cols, 2, place % 2);
    } else if (how >= 4) {
      at.first_holder = rank == owner;
    }
    if (at.rows.size() > 0) {
      out.push_back(std::make_unique<MemoryRows>(table, at));
    }
  }
  return out;
}

/// Has a rank's tables lie in files.
inline void use_store(const RankTables& tables, FileStore& store) {
  for (const auto& table : tables) {
    table->use_store(store);
  }
}

inline std::vector<const StateSource*> sources_of(const RankTables& tables) {
  std::vector<const StateSource*> out;
  for (const auto& table : tables) {
    out.push_back(table.get());
  }
  return out;
}

inline std::vector<StateSink*> sinks_of(const RankTables& tables) {
  std::vector<StateSink*> out;
  for (const auto& table : tables) {
    out.push_back(table.get());
  }
  return out;
}

inline std::vector<RowState*> rows_of(const RankTables& tables) {
  std::vector<RowState*> out;
  for (const auto& table : tables) {
    out.push_back(table.get());
  }
  return out;
}

/// Changes rows drawn from `seed`, the same on all ranks: `share` of all in percent.
inline void draw_updates(const std::vector<Table>& tables,
                         std::uint32_t seed,
                         unsigned share,
                         Versions& versions) {
  std::mt19937 random(seed);
  for (const Table& table : tables) {
    for (std::int64_t row = 0; row < table.rows; ++row) {
      if (random() % 100 < share) {
        ++versions[{table.name, row}];
      }
    }
  }
}

/// Gives the tables the values of `to`, where these are others than those of `from`.
inline void apply(const RankTables& tables, const Versions& from, const Versions& to) {
  for (const auto& [key, version] : to) {
    if (version == version_of(from, key.first, key.second)) {
      continue;
    }
    for (const auto& table : tables) {
      if (table->table().name == key.first) {
        table->update(key.second, version);
      }
    }
  }
}

inline std::int64_t differences(const RankTables& tables, const Versions& versions) {
  std::int64_t sum = 0;
  for (const auto& table : tables) {
    sum += table->differences(versions);
  }
  return sum;
}

}  // namespace weft::checkpoint
