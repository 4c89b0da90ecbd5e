#include "weft/sharding/fetch_turns.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"

namespace weft::sharding {
namespace {

/// Rows that write down when they are finished.
class NotedRows final : public storage::ResidentRows {
 public:
  NotedRows(std::int64_t number, std::int64_t rows, std::vector<std::int64_t>& finished)
      : number_(number), rows_(rows), finished_(finished) {}

  void begin_fetch(Context& /*ctx*/, std::span<const kernels::Bags> /*rows*/) override {}

  void finish_fetch(Context& /*ctx*/) override {
    finished_.push_back(number_);
    rows_ = 0;
  }

  [[nodiscard]] std::int64_t rows_being_read() const override { return rows_; }

  void fetch_late(Context& /*ctx*/) override {}

  void release(storage::Release /*how*/) override {}

 private:
  std::int64_t number_;
  std::int64_t rows_;
  std::vector<std::int64_t>& finished_;
};

/// Tables that read so many rows each.
class FetchTurnsOf {
 public:
  /// Returns the tables that have been finished after each add(), and after finish().
  std::vector<std::vector<std::int64_t>> run(const std::vector<std::int64_t>& rows) {
    std::vector<std::int64_t> finished;
    std::vector<std::unique_ptr<NotedRows>> tables;
    std::vector<std::vector<std::int64_t>> found;
    Context ctx;
    turns_.begin();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tables.push_back(
          std::make_unique<NotedRows>(static_cast<std::int64_t>(i), rows[i], finished));
      turns_.add(ctx, *tables.back());
      found.push_back(std::exchange(finished, {}));
    }
    turns_.finish(ctx);
    found.push_back(finished);
    return found;
  }

 private:
  FetchTurns turns_;
};

using Finished = std::vector<std::vector<std::int64_t>>;

TEST(FetchTurns, FinishesWhatHasEnoughReadsBehindIt) {
  constexpr std::int64_t kHalf = FetchTurns::kRowsBehind / 2;
  FetchTurnsOf turns;
  EXPECT_EQ(turns.run({kHalf, kHalf, kHalf, kHalf}), (Finished{{}, {}, {0}, {1}, {2, 3}}));
  EXPECT_EQ(turns.run({1, 2 * kHalf, 5 * kHalf, 1}), (Finished{{}, {0}, {1}, {}, {2, 3}}));
}

TEST(FetchTurns, WaitsForNobodyWhileLittleIsRead) {
  FetchTurnsOf turns;
  EXPECT_EQ(turns.run({FetchTurns::kRowsBehind - 2, 1, 0}), (Finished{{}, {}, {}, {0, 1, 2}}));
  EXPECT_EQ(turns.run({}), (Finished{{}}));
}

/// Tables of which all rows are in memory cost no turn and hold up none.
TEST(FetchTurns, PassTablesThatReadNothing) {
  FetchTurnsOf turns;
  EXPECT_EQ(turns.run({0, 0, FetchTurns::kRowsBehind, 0}), (Finished{{}, {}, {0, 1}, {}, {2, 3}}));
}

}  // namespace
}  // namespace weft::sharding
