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

// Rows some bytes apart, of which the first begins at an odd address.
struct Strewn {
  std::int64_t stride;
  std::vector<std::uint8_t> memory;

  Strewn(const std::vector<std::uint8_t>& rows,
         std::int64_t count,
         std::int64_t bytes,
         std::int64_t between)
      : stride(bytes + between), memory(static_cast<std::size_t>(count * stride + 1), 0xEE) {
    for (std::int64_t r = 0; r < count; ++r) {
      std::memcpy(memory.data() + 1 + r * stride, rows.data() + r * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }

  void place(const void*& begin, std::int64_t& distance) const {
    begin = memory.data() + 1;
    distance = stride;
  }
};

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
                             .values_stride = cols * bytes,
                             .initial_stride = cols * bytes,
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
          const std::uint64_t some = reference::element_hash(block);
          const Strewn apart(values, rows, cols * bytes, 3);
          const Strewn initial_apart(initial, rows, cols * bytes, 5);
          apart.place(block.values, block.values_stride);
          initial_apart.place(block.initial, block.initial_stride);
          EXPECT_EQ(cpu::element_hash(block), some) << "rows apart, at odd addresses";
          EXPECT_EQ(reference::element_hash(block), some);
          block.values = values.data();
          block.values_stride = cols * bytes;
          block.initial_stride = cols * bytes;
          block.initial = values.data();
          EXPECT_EQ(cpu::element_hash(block), 0U);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::test
