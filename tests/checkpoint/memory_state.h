/// State in memory, cut over ranks at random: what the tests save, load and hash.
#pragma once

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/local/local.h"

namespace weft::checkpoint {

/// A matrix of the job; who holds it is drawn per test.
struct Matrix {
  std::string parameter;
  std::string kind;
  DType dtype;
  std::int64_t rows;
  std::int64_t cols;
};

inline std::vector<Matrix> small_matrices() {
  return {{"tables.a", "weight", DType::kFloat32, 13, 20},
          {"tables.a", "sum", DType::kFloat32, 13, 1},
          {"tables.b", "weight", DType::kBFloat16, 1, 33},
          {"dense.top.0", "weight", DType::kFloat32, 7, 5},
          {"dense.top.0", "exp_avg", DType::kFloat64, 7, 5},
          {"tables.c", "weight", DType::kUInt8, 40, 3},
          {"tables.d", "weight", DType::kInt64, 0, 4}};
}

/// The byte at a place: a pure function of the logical matrix, whoever holds it. `seed` is
/// seed_of(item), which does not change from byte to byte.
inline std::uint64_t seed_of(const StateItem& item) {
  return hash_string(item.parameter + "/" + item.kind);
}

inline std::uint8_t byte_at(std::uint64_t seed, std::int64_t place, std::int64_t byte) {
  const auto index = static_cast<std::uint64_t>(place * 8 + byte);
  return static_cast<std::uint8_t>(mix64(seed + index * 0x9e3779b97f4a7c15ULL) >> 56);
}

class MemoryState : public StateSource, public StateSink {
 public:
  void add(const Matrix& m, const RowSet& rows, Range cols, int is_first) {
    StateItem item{m.parameter, m.kind,     m.dtype,  m.rows,        m.cols,   rows.begin,
                   rows.end,    cols.begin, cols.end, is_first != 0, rows.step};
    const std::int64_t bytes = rows.size() * cols.size() * size_of(m.dtype);
    blocks_.emplace_back(static_cast<std::size_t>(bytes));
    items_.push_back(item);
  }

  /// Every block as byte_at() says.
  void fill() {
    visit([](std::byte& place, std::uint8_t value) { place = std::byte{value}; });
  }

  /// How many bytes are not as byte_at() says.
  [[nodiscard]] std::int64_t differences() {
    std::int64_t count = 0;
    visit(
        [&](std::byte& place, std::uint8_t value) { count += place == std::byte{value} ? 0 : 1; });
    return count;
  }

  std::byte& at(std::size_t item, std::size_t byte) { return blocks_[item][byte]; }

  [[nodiscard]] std::vector<StateItem> state_items() const override { return items_; }

  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override {
    if (failing_) {
      fail(ErrorCode::kResource, "the device has gone");
    }
    const StateItem& item = items_[index];
    const std::int64_t row_bytes = (item.col_end - item.col_begin) * size_of(item.dtype);
    std::memcpy(out, blocks_[index].data() + item.held().index(row_begin) * row_bytes,
                static_cast<std::size_t>(rows * row_bytes));
  }

  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override {
    const StateItem& item = items_[index];
    WEFT_CHECK(item.held().contains(row_begin) &&
               item.held().index(row_begin) + rows <= item.held().size() &&
               item.col_begin <= col_begin && col_end <= item.col_end);
    const std::int64_t size = size_of(item.dtype);
    const std::int64_t row_bytes = (item.col_end - item.col_begin) * size;
    const std::int64_t cut = (col_end - col_begin) * size;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(blocks_[index].data() + (item.held().index(row_begin) + r) * row_bytes +
                      (col_begin - item.col_begin) * size,
                  static_cast<const std::byte*>(in) + r * cut, static_cast<std::size_t>(cut));
    }
  }

  void break_reads() { failing_ = true; }

 private:
  template <typename Visit>
  void visit(const Visit& each) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const StateItem& item = items_[i];
      const std::uint64_t seed = seed_of(item);
      const std::int64_t size = size_of(item.dtype);
      std::byte* at = blocks_[i].data();
      for (std::int64_t r = item.row_begin; r < item.row_end; r += item.row_step) {
        for (std::int64_t c = item.col_begin; c < item.col_end; ++c) {
          for (std::int64_t b = 0; b < size; ++b) {
            each(*at++, byte_at(seed, r * item.cols + c, b));
          }
        }
      }
    }
  }

  std::vector<StateItem> items_;
  std::vector<std::vector<std::byte>> blocks_;
  bool failing_ = false;
};

/// What rank `rank` of `ranks` holds of the matrices under a layout drawn from `seed`: one owner,
/// cut by rows, by columns, whole copies on all ranks with any of them as first holder, or every
/// n-th row and, of wide ones, half of the columns each.
inline MemoryState make_state(const std::vector<Matrix>& matrices,
                              std::uint32_t seed,
                              int ranks,
                              int rank) {
  std::mt19937 random(seed);  // the same draws on all ranks
  MemoryState state;
  for (const Matrix& m : matrices) {
    const auto how = random() % 5;
    const auto owner = static_cast<std::int64_t>(random() % static_cast<unsigned>(ranks));
    const std::int64_t place = (rank + owner) % ranks;
    RowSet rows{0, m.rows};
    Range cols{0, m.cols};
    if (how == 0 && rank != owner) {
      continue;
    }
    if (how == 1) {
      rows = piece(m.rows, ranks, place);
    }
    if (how == 2) {
      cols = piece(m.cols, ranks, place);
    }
    if (how == 4 && m.rows > 0) {
      const std::int64_t columns = ranks % 2 == 0 && m.cols > 1 ? 2 : 1;
      const std::int64_t count = std::min(ranks / columns, m.rows);
      if (place / columns >= count) {
        continue;
      }
      rows = {place / columns, m.rows, count};
      cols = piece(m.cols, columns, place % columns);
    }
    state.add(m, rows, cols, how == 3 && rank != owner ? 0 : 1);
  }
  return state;
}

/// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-checkpoint-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }

  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline SaveOptions save_options(const std::string& directory, std::int64_t step) {
  SaveOptions options;
  options.directory = directory;
  options.metadata.step = step;
  options.metadata.epoch = 3;
  options.metadata.sample = 12345;
  options.metadata.weft_version = "0.1.0";
  options.metadata.target = "avx2";
  options.metadata.config_yaml = "seed: 1\nname: \"ü\"\n";
  options.metadata.plan_yaml = "ranks: 2\n";
  options.metadata.config_hash = 0xfedcba9876543210ULL;
  options.metadata.plan_hash = 7;
  options.metadata.extra_json = R"({"best":0.5})";
  options.blobs = {{"vocabularies", std::string("a\0b\n", 4)}, {"empty", ""}};
  return options;
}

/// Saves the filled matrices from `ranks` ranks.
inline void save_all(const SaveOptions& options,
                     const std::vector<Matrix>& matrices,
                     std::uint32_t seed,
                     int ranks) {
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state = make_state(matrices, seed, ranks, world.rank());
    state.fill();
    const StateSource* source = &state;
    save(world, ctx, options, std::span(&source, 1));
  });
}

/// Loads them on `ranks` ranks under another layout; returns how many bytes differ.
inline std::int64_t load_all(const LoadOptions& options,
                             const std::vector<Matrix>& matrices,
                             std::uint32_t seed,
                             int ranks) {
  std::vector<std::int64_t> differences(static_cast<std::size_t>(ranks));
  comm::run_local(ranks, {}, [&](comm::Communicator& world) {
    Context ctx;
    MemoryState state = make_state(matrices, seed, ranks, world.rank());
    StateSink* sink = &state;
    load(world, ctx, options, std::span(&sink, 1));
    differences[static_cast<std::size_t>(world.rank())] = state.differences();
  });
  std::int64_t sum = 0;
  for (const std::int64_t one : differences) {
    sum += one;
  }
  return sum;
}

/// The message of the Error(kCheckpoint) that `action` throws; says so where it does not.
template <typename Action>
std::string checkpoint_error(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kCheckpoint ? error.what()
                                                  : std::string("OTHER CODE: ") + error.what();
  }
  return "NO ERROR";
}

/// Whether a message contains one of some texts; shows it where it does not.
inline testing::AssertionResult says(const std::string& message,
                                     std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (message.find(text) != std::string::npos) {
      return testing::AssertionSuccess();
    }
  }
  return testing::AssertionFailure() << "the message is: " << message;
}

}  // namespace weft::checkpoint
