// Packed ids: what comes back is what was there, in the bytes of the plain loops and no more than
// promised; any other bytes are refused or read alike, and nothing beside them is touched.
#include "weft/kernels/packed_ids.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"

namespace weft::kernels {
namespace {

using Ids = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

constexpr std::byte kMark{0xA5};

/// The packed ids, exactly.
Bytes pack(const Ids& ids, std::int64_t id_bytes) {
  const std::int64_t most = most_packed_bytes(std::ssize(ids), id_bytes);
  Bytes bytes(at(most + kPackedIdSlack) + 1, kMark);
  const std::int64_t size = pack_ids(ids, id_bytes, bytes.data());
  EXPECT_LE(size, most);
  EXPECT_EQ(bytes.back(), kMark) << "written behind the slack";
  bytes.resize(at(size));
  Bytes plain(at(most) + 1, kMark);
  EXPECT_EQ(reference::pack_ids(ids, id_bytes, plain.data()), size);
  EXPECT_EQ(plain.back(), kMark);
  plain.resize(at(size));
  EXPECT_EQ(bytes, plain);
  return bytes;
}

/// Memory of exactly these bytes, so that sanitizers see a read behind them.
struct Message {
  explicit Message(const Bytes& from) : size(from.size()), bytes(new std::byte[from.size()]) {
    std::copy(from.begin(), from.end(), bytes.get());
  }

  [[nodiscard]] std::span<const std::byte> span() const { return {bytes.get(), size}; }

  std::size_t size;
  std::unique_ptr<std::byte[]> bytes;
};

/// What both loops say of it.
std::int64_t unpack(const Bytes& bytes, std::int64_t id_bytes, std::int64_t limit, Ids& ids) {
  const Message message(bytes);
  Ids plain(ids.size());
  const std::int64_t read = unpack_ids(message.span(), id_bytes, limit, ids);
  EXPECT_EQ(reference::unpack_ids(message.span(), id_bytes, limit, plain), read);
  if (read >= 0) {
    EXPECT_EQ(ids, plain);
  }
  return read;
}

void expect_round_trip(const Ids& ids, std::int64_t id_bytes) {
  const Bytes bytes = pack(ids, id_bytes);
  const std::int64_t limit = ids.empty() ? 1 : ids.back() + 1;
  Ids got(ids.size(), -1);
  EXPECT_EQ(unpack(bytes, id_bytes, limit, got), std::ssize(bytes));
  EXPECT_EQ(got, ids);
  Bytes longer = bytes;  // another list follows
  longer.insert(longer.end(), 40, kMark);
  EXPECT_EQ(unpack(longer, id_bytes, limit, got), std::ssize(bytes));
  EXPECT_EQ(got, ids);
  if (!ids.empty()) {
    EXPECT_EQ(unpack(bytes, id_bytes, limit - 1, got), -1) << "the last id is outside";
    for (const std::size_t cut : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      EXPECT_EQ(
          unpack(Bytes(bytes.begin(), bytes.begin() + std::ptrdiff_t(cut)), id_bytes, limit, got),
          -1)
          << "cut off at " << cut;
    }
  }
}

constexpr std::array<std::int64_t, 14> kCounts = {0,   1,   2,   7,   8,   9,   63,
                                                  127, 128, 129, 255, 256, 300, 1000};

TEST(PackedIds, ComeBackForEveryWidthAndCount) {
  std::mt19937_64 random(7);
  for (const std::int64_t id_bytes : {1, 2, 4, 8}) {
    const int most_bits = id_bytes == 8 ? 62 : static_cast<int>(8 * id_bytes);
    for (const std::int64_t count : kCounts) {
      for (int bits = 0; bits <= most_bits; ++bits) {
        // One difference has `bits` bits, the others any number of them that stays inside.
        const auto end = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) >>
                         (63 - (id_bytes == 8 ? 63 : 8 * id_bytes));
        const std::uint64_t largest = bits == 0 ? 0 : (std::uint64_t{1} << bits) - 1;
        const std::uint64_t room =
            count < 2 || largest >= end ? 0 : std::min(largest, (end - largest) / at(count));
        Ids ids;
        std::uint64_t id = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          id += i == count / 2 && count > 1 ? std::min(largest, end - id) : random() % (room + 1);
          ids.push_back(static_cast<std::int64_t>(id));
        }
        expect_round_trip(ids, id_bytes);
      }
    }
  }
}

TEST(PackedIds, TakeTheBitsOfTheLargestDifference) {
  Ids ids;
  for (std::int64_t i = 0; i < 256; ++i) {
    ids.push_back(3 * i);
  }
  EXPECT_EQ(pack(ids, 4).size(), 2 * (4 + 1 + (127 * 2 + 7) / 8));
  ids[255] += 100;
  EXPECT_EQ(pack(ids, 4).size(), (5 + (127 * 2 + 7) / 8) + (5 + (127 * 7 + 7) / 8));
  EXPECT_EQ(pack(Ids(128, 9), 2).size(), 3U) << "equal ids";
  EXPECT_EQ(pack({}, 4).size(), 0U);
}

TEST(PackedIds, OfNoKindAreRefused) {
  Ids two(2);
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes all;
    for (const int value : values) {
      all.push_back(static_cast<std::byte>(value));
    }
    return all;
  };
  EXPECT_EQ(unpack(bytes({5, 3, 7}), 1, 13, two), 3);
  EXPECT_EQ(two, (Ids{5, 12}));
  EXPECT_EQ(unpack(bytes({5, 3, 7}), 1, 12, two), -1) << "outside";
  EXPECT_EQ(unpack(bytes({5, 33, 7, 0, 0, 0, 0}), 1, 100, two), -1) << "33 bits";
  EXPECT_EQ(unpack(bytes({5, 64, 7, 0, 0, 0, 0, 0, 0, 0}), 1, 100, two), 10);
  EXPECT_EQ(unpack(bytes({5, 64, 255, 255, 255, 255, 255, 255, 255, 255}), 1, 100, two), -1)
      << "back to 4";
  EXPECT_EQ(unpack(bytes({5, 3}), 1, 100, two), -1) << "no difference";
  Ids descending(kPackedIdBlock + 1);
  Bytes blocks = bytes({9, 0, 8, 0});  // 128 times 9, then 8
  EXPECT_EQ(unpack(blocks, 1, 100, descending), -1) << "descending";
  blocks[2] = std::byte{9};
  EXPECT_EQ(unpack(blocks, 1, 100, descending), 4);
}

TEST(PackedIds, DamagedOnesNeverLeaveTheirBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t id_bytes = std::int64_t{1} << random() % 4;
    Bytes bytes(random() % 300);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() % 5 == 0 ? random() % 8 : random());
    }
    Ids ids(random() % 300);
    const std::int64_t limit = std::int64_t{1} << random() % 63;
    const std::int64_t read = unpack(bytes, id_bytes, limit, ids);
    if (read >= 0) {
      EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      EXPECT_TRUE(ids.empty() || (ids.front() >= 0 && ids.back() < limit));
    }
  }
}

}  // namespace
}  // namespace weft::kernels
