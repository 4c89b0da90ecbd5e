#include "weft/train/event_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
}

std::string_view take_bytes(std::string_view& bytes) {
  const std::uint64_t size = take_varint(bytes);
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

struct Read {
  std::int64_t step = -1;
  std::string version;
  std::map<std::string, float> figures;
};

void expect_crc(std::uint32_t stored, std::string_view bytes) {
  EXPECT_EQ(std::rotl(stored - 0xA282EAD8U, 15), crc32c(bytes)) << "as TensorFlow unmasks it";
}

Read parse_event(std::string_view event) {
  Read read;
  while (!event.empty()) {
    switch (take_varint(event)) {
      case 0x09:
        EXPECT_GT(take<double>(event), 1e9) << "seconds since 1970";
        break;
      case 0x10:
        read.step = static_cast<std::int64_t>(take_varint(event));
        break;
      case 0x1A:
        read.version = take_bytes(event);
        break;
      case 0x2A:
        for (std::string_view summary = take_bytes(event); !summary.empty();) {
          EXPECT_EQ(take_varint(summary), 0x0AU);
          std::string_view value = take_bytes(summary);
          EXPECT_EQ(take_varint(value), 0x0AU);
          const std::string tag(take_bytes(value));
          EXPECT_EQ(take_varint(value), 0x15U);
          read.figures[tag] = take<float>(value);
        }
        break;
      default:
        ADD_FAILURE() << "a field of another message";
        return read;
    }
  }
  return read;
}

std::vector<Read> read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string all = text.str();
  std::vector<Read> events;
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view length = rest.substr(0, 8);
    const auto size = take<std::uint64_t>(rest);
    expect_crc(take<std::uint32_t>(rest), length);
    const std::string_view event = rest.substr(0, size);
    rest.remove_prefix(size);
    expect_crc(take<std::uint32_t>(rest), event);
    events.push_back(parse_event(event));
  }
  return events;
}

TEST(EventFile, KnownChecksums) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU) << "RFC 3720, B.4";
}

TEST(EventFile, HoldsFiguresByStep) {
  const fs::path folder =
      fs::temp_directory_path() / ("weft_event_file_" + std::to_string(getpid()));
  {
    EventFile file((folder / "made").string());
    const std::vector<Figure> first = {{"train/loss", 0.5}, {"train/ne", std::nan("")}};
    file.add(100, first);
    const std::vector<Figure> second = {{"train/loss", 0.25},
                                        {"eval/auc", std::numeric_limits<double>::infinity()},
                                        {"speed/samples_per_s", 1e6}};
    file.add(1'000'000, second);
    const EventFile other((folder / "made").string());
    EXPECT_NE(file.path(), other.path());
    EXPECT_NE(file.path().find("events.out.tfevents."), std::string::npos);

    const std::vector<Read> events = read_file(file.path());
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_EQ(events[1].step, 100);
    EXPECT_EQ(events[1].figures, (std::map<std::string, float>{{"train/loss", 0.5F}}));
    EXPECT_EQ(events[2].step, 1'000'000);
    EXPECT_EQ(events[2].figures,
              (std::map<std::string, float>{{"train/loss", 0.25F}, {"speed/samples_per_s", 1e6F}}));
  }
  fs::remove_all(folder);
}

TEST(EventFile, SaysWhereItCannotWrite) {
  try {
    const EventFile file("/dev/null/folder");
    ADD_FAILURE() << "written below a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("/dev/null/folder"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::train
