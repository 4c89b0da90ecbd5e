// Files that are cut, changed, forged or foreign: all are refused.
#include <fmt/format.h>

#include "tests/rowfile/segment_support.h"
#include "weft/rowfile/block.h"
#include "weft/rowfile/segment_format.h"

namespace weft::rowfile {
namespace {

using io::FaultyFileSystem;

std::string small_segment() {
  FaultyFileSystem files;
  write_small(files);
  return load(files);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SegmentDamage, EveryFlippedByteIsFound) {
  const std::string whole = small_segment();
  FaultyFileSystem files;
  store(files, whole);
  ASSERT_EQ(refusal(files), "");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    store(files, bytes);
    const std::string message = refusal(files);
    ASSERT_TRUE(has(message, kPath) && has(message, "byte")) << "byte " << i << ": " << message;
  }
}

TEST(SegmentDamage, NamesTheFirstDamagedBlock) {
  std::string bytes = small_segment();
  bytes[3 * 4096 + 100] ^= 1;
  bytes[5 * 4096 + 100] ^= 1;
  FaultyFileSystem files;
  store(files, bytes);
  const std::string message = refusal(files);
  EXPECT_TRUE(has(message, "at byte 12288: block 3: its checksum is ")) << message;
  EXPECT_TRUE(has(message, "restore it from a copy")) << message;
  const SegmentReader reader(files, kPath);  // which reads no row
  Bytes group(4096);
  EXPECT_EQ(reader.read_group(0, 1, group), 15);
}

TEST(SegmentDamage, EveryTruncationIsRefused) {
  const std::string whole = small_segment();
  FaultyFileSystem files;
  for (std::size_t size = 0; size < whole.size(); size += size % 4096 < 4000 ? 97 : 1) {
    store(files, whole.substr(0, size));
    ASSERT_NE(refusal(files), "") << size;
  }
  store(files, whole + std::string(4096, '\0'));
  EXPECT_TRUE(has(refusal(files), "not sealed"));
  store(files, whole + whole);
  EXPECT_NE(refusal(files), "");
}

TEST(SegmentDamage, BlocksThatChangedPlacesAreFound) {
  std::string bytes = small_segment();
  FaultyFileSystem files;
  // The two rows of the second stream.
  std::swap_ranges(bytes.begin() + 3 * 4096, bytes.begin() + 5 * 4096, bytes.begin() + 5 * 4096);
  store(files, bytes);
  EXPECT_TRUE(has(refusal(files), "block 3: its checksum"));
}

/// A change of a small segment that has right checksums again.
std::string forged(const std::function<void(std::string&)>& change) {
  std::string bytes = small_segment();
  change(bytes);
  const auto put = [&](std::size_t at, std::uint64_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  const auto all = std::as_bytes(std::span(bytes));
  put(4088, hash_bytes(all.first(4088)));
  const std::size_t trailer = bytes.size() - 64;
  const auto footer = format::load<std::uint64_t>(all.data() + trailer + 16);
  const auto length = format::load<std::uint64_t>(all.data() + trailer + 24);
  if (footer < trailer && length + 8 <= trailer - footer) {
    put(footer + length, hash_bytes(all.subspan(footer, length)));
    put(trailer + 32, hash_bytes(all.subspan(footer + length, 8)));
  }
  put(trailer + 56, hash_bytes(all.subspan(trailer, 56)));
  return bytes;
}

template <typename T>
std::function<void(std::string&)> set(std::size_t at, T value) {
  return [=](std::string& bytes) { std::memcpy(bytes.data() + at, &value, sizeof value); };
}

TEST(SegmentDamage, FieldsThatDoNotFitAreRefused) {
  const std::string whole = small_segment();
  ASSERT_EQ(forged([](std::string&) {}), whole);
  const std::size_t trailer = whole.size() - 64;
  const std::size_t footer = 7 * 4096;

  struct Case {
    std::function<void(std::string&)> change;
    const char* message;
  };

  const std::vector<Case> cases = {
      {set<std::uint8_t>(0, 'X'), "does not begin as a segment"},
      {set<std::uint32_t>(8, 2), "it has version 2, and this build reads version 1"},
      {set<std::uint32_t>(12, 0), "0 streams"},
      {set<std::uint32_t>(12, 0xffffffff), "4294967295 streams"},
      {set<std::uint32_t>(12, 65536), "its header of"},
      {set<std::uint64_t>(16, 9), "two streams have the key"},
      {set<std::int64_t>(24, 0), "rows of 0 bytes"},
      {set<std::int64_t>(24, -1), "rows of -1 bytes"},
      {set<std::int64_t>(24, std::int64_t{1} << 62), "and 1 to"},
      {set<std::int64_t>(24, 300), "group 0 has 15 rows of 300 bytes"},
      {set<std::uint32_t>(trailer + 8, 7), "it has version 7"},
      {set<std::int64_t>(trailer + 16, -4096), "its trailer states a footer"},
      {set<std::int64_t>(trailer + 16, 4096), "its trailer states a footer"},
      {set<std::int64_t>(trailer + 16, std::int64_t{0x7ffffffffffff000}), "its trailer states"},
      {set<std::int64_t>(trailer + 24, std::int64_t{0x7ffffffffffffff8}), "its trailer states"},
      {set<std::int64_t>(trailer + 24, 0), "is damaged"},
      {set<std::int64_t>(trailer + 40, 21), "rows up to block"},
      {set<std::int64_t>(trailer + 48, 0), "tombstones"},
      {set<std::uint64_t>(footer, 0), "0 rows up to block 1"},
      {set<std::uint64_t>(footer, ~std::uint64_t{0}), "is damaged"},
      {set<std::uint32_t>(footer + 8, 2), "group 0 is of stream 2 of 2"},
      {set<std::uint32_t>(footer + 12, 0), "group 0 has 0 rows"},
      {set<std::uint32_t>(footer + 12, 16), "group 0 has 16 rows"},
      {set<std::uint64_t>(footer + 16, 2), "in 2 blocks"},
      {set<std::uint64_t>(footer + 16, std::uint64_t{1} << 63), "blocks"},
  };
  FaultyFileSystem files;
  for (const Case& one : cases) {
    store(files, forged(one.change));
    const std::string message = refusal(files);
    EXPECT_TRUE(has(message, one.message)) << one.message << ": " << message;
  }
}

TEST(SegmentDamage, NumberOfRowsIsThatOfTheFooter) {
  std::string bytes = small_segment();
  const auto group = std::as_writable_bytes(std::span(bytes)).subspan(4096, 4096);
  seal_group(group, 1, 0, 14);
  FaultyFileSystem files;
  store(files, bytes);
  const std::string message = refusal(files);
  EXPECT_TRUE(has(message, "block 1 has 14 rows, and the footer has 15 ids of it")) << message;
}

TEST(SegmentDamage, OtherPathsAreRefused) {
  FaultyFileSystem files;
  ASSERT_FALSE(files.make_directory("/folder"));
  EXPECT_TRUE(has(refusal(files, "/nothing"), "cannot open '/nothing'"));
  EXPECT_TRUE(has(refusal(files, "/folder"), "'/folder' is not a regular file"));
}

}  // namespace
}  // namespace weft::rowfile
