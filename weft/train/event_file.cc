#include "weft/train/event_file.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace weft::train {

namespace {

namespace fs = std::filesystem;

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kBytes = 2;
constexpr int kFixed32 = 5;

/// A message in protobuf's wire form.
class Message {
 public:
  void integer(int field, std::uint64_t value) {
    key(field, kVarint);
    varint(value);
  }

  void real64(int field, double value) {
    key(field, kFixed64);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
  }

  void real32(int field, float value) {
    key(field, kFixed32);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
  }

  void bytes(int field, std::string_view value) {
    key(field, kBytes);
    varint(value.size());
    text_ += value;
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void key(int field, int type) { varint(static_cast<std::uint64_t>((field << 3) | type)); }

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      text_ += static_cast<char>((value & 0x7F) | 0x80);
    }
    text_ += static_cast<char>(value);
  }

  void fixed(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) {
      text_ += static_cast<char>((value >> (8 * i)) & 0xFF);
    }
  }

  std::string text_;
};

std::string little_endian(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
  }
  return bytes;
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Message event(std::int64_t step) {
  Message message;
  message.real64(1, wall_time());
  message.integer(2, static_cast<std::uint64_t>(step));
  return message;
}

/// A name that no other writer of the folder has.
std::string new_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(
      "events.out.tfevents.{:010}.{}.{}.{}",
      std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, getpid(),
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() % 1000000000);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (kPolynomial & (0U - (crc & 1U)));
    }
  }
  return ~crc;
}

EventFile::EventFile(const std::string& folder)
    : file_((fs::path(folder) / new_name()).string(),
            "check the folder of --tensorboard, space and permissions") {
  std::error_code error;
  fs::create_directories(folder, error);  // where that fails, so does what follows
  Message first = event(0);
  first.bytes(3, "brain.Event:2");
  write_record(first.text());
}

void EventFile::add(std::int64_t step, std::span<const Figure> figures) {
  Message summary;
  for (const Figure& figure : figures) {
    if (std::isfinite(figure.value)) {
      Message value;
      value.bytes(1, figure.tag);
      value.real32(2, static_cast<float>(figure.value));
      summary.bytes(1, value.text());
    }
  }
  Message message = event(step);
  message.bytes(5, summary.text());
  write_record(message.text());
}

void EventFile::write_record(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  file_.append(length + little_endian(masked_crc(length), 4) + event +
               little_endian(masked_crc(event), 4));
}

}  // namespace weft::train
