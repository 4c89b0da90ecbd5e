// Rows in host memory below a cache, against a map.

#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/storage/memory_backing.h"

namespace weft::storage::test {
namespace {

TEST(MemoryBacking, IsAMapOfRows) {
  constexpr std::int64_t kBytes = 11;
  MemoryBacking backing(kBytes);
  std::mt19937_64 random(3);
  std::map<std::int64_t, std::vector<std::byte>> model;
  const std::unique_ptr<RowReads> reads = backing.make_reads();
  for (int round = 0; round < 60; ++round) {
    std::map<std::int64_t, std::vector<std::byte>> some;
    for (int i = 0; i < 50; ++i) {
      const auto row = static_cast<std::int64_t>(random() % 700) + (std::int64_t{1} << 40);
      some[row].assign(at(kBytes), static_cast<std::byte>(random()));
    }
    std::vector<std::int64_t> rows;
    std::vector<std::byte> packed;
    for (const auto& [row, bytes] : some) {
      rows.push_back(row);
      packed.insert(packed.end(), bytes.begin(), bytes.end());
      model[row] = bytes;
    }
    backing.write(rows, packed.data());
    std::vector<std::int64_t> asked(500);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      asked[i] = (std::int64_t{1} << 40) + 2 * static_cast<std::int64_t>(i);
    }
    std::vector<std::byte> got(asked.size() * at(kBytes), std::byte{77});
    std::vector<std::uint8_t> found(asked.size());
    reads->begin(asked, got.data());
    reads->wait(found);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto own = model.find(asked[i]);
      ASSERT_EQ(found[i], own == model.end() ? 0 : 1) << asked[i];
      const std::vector<std::byte> bytes(got.begin() + static_cast<std::int64_t>(i) * kBytes,
                                         got.begin() + static_cast<std::int64_t>(i + 1) * kBytes);
      ASSERT_EQ(bytes, own == model.end() ? std::vector(at(kBytes), std::byte{77}) : own->second);
    }
  }
  std::vector<std::int64_t> held;
  backing.for_each_row([&](auto some) { held.insert(held.end(), some.begin(), some.end()); });
  std::vector<std::int64_t> own;
  for (const auto& [row, bytes] : model) {
    own.push_back(row);
  }
  EXPECT_EQ(held, own);
  EXPECT_EQ(backing.rows_held(), std::ssize(own));
  EXPECT_GE(backing.bytes(), std::ssize(own) * kBytes);
  EXPECT_LE(backing.bytes(), (std::ssize(own) + 7 * 12) * kBytes);
}

}  // namespace
}  // namespace weft::storage::test
