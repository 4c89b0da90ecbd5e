// The sum of state's words against plain loops.

#include "weft/kernels/element_hash.h"

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/parity.h"

namespace weft::kernels::test {
namespace {

TEST(ElementHash, IsThatOfPlainLoopsOnEveryTarget) {
  for (const std::int64_t target : targets()) {
    const OnTarget on(target);
    std::mt19937_64 random(11);
    for (const std::int64_t bytes : {1, 2, 4, 8}) {
      for (const std::int64_t rows : {0, 1, 2, 7, 33}) {
        for (const std::int64_t cols : {1, 2, 3, 7, 8, 9, 16, 31, 64}) {
          const auto size = static_cast<std::size_t>(rows * cols * bytes);
          std::vector<std::uint64_t> keys(static_cast<std::size_t>(rows));
          for (std::uint64_t& key : keys) {
            key = random();
          }
          std::vector<std::uint8_t> values(size);
          for (std::uint8_t& value : values) {
            value = static_cast<std::uint8_t>(random());
          }
          std::vector<std::uint8_t> initial = values;
          for (std::size_t i = 0; i < size; ++i) {
            initial[i] ^= static_cast<std::uint8_t>(random() % 5 == 0 ? 1U : 0U);
          }
          ElementBlock block{.values = values.data(),
                             .row_keys = keys.data(),
                             .rows = rows,
                             .cols = cols,
                             .first_col = static_cast<std::int64_t>(random() % 100),
                             .element_bytes = bytes};
          const std::uint64_t all = reference::element_hash(block);
          EXPECT_EQ(cpu::element_hash(block), all) << rows << " x " << cols << " of " << bytes;
          block.initial = initial.data();
          EXPECT_EQ(cpu::element_hash(block), reference::element_hash(block))
              << rows << " x " << cols << " of " << bytes;
          EXPECT_TRUE(rows * cols < 200 || reference::element_hash(block) != all);
          block.initial = values.data();
          EXPECT_EQ(cpu::element_hash(block), 0U);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::test
