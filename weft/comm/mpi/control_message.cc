#include "weft/comm/mpi/control_message.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace weft::comm {
namespace {

constexpr std::uint32_t kControlMagic = 0x4c544357;  // "WCTL"
constexpr std::uint32_t kControlVersion = 4;

/// A wait as it travels: this, the group's name, then the missing ranks.
struct WaitRecord {
  NumberedRank self;
  std::uint64_t sequence = 0;
  std::int64_t size = 0;
  std::uint64_t arguments = 0;
  double seconds = 0.0;
  std::int32_t collective = 0;
  std::int32_t name_bytes = 0;
  std::int32_t missing = 0;
  std::int32_t at_end = 0;
};

// Of these a wait names no more: many are missing where one that they wait for is.
constexpr std::size_t kMostMissing = 128;

void append(std::vector<std::byte>& bytes, const void* data, std::size_t count) {
  const auto* const begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count);
}

ControlRecord record_of(ControlKind kind) {
  return {
      .magic = kControlMagic, .version = kControlVersion, .kind = static_cast<std::uint32_t>(kind)};
}

std::vector<std::byte> bytes_of(const ControlRecord& record) {
  std::vector<std::byte> bytes;
  append(bytes, &record, sizeof record);
  return bytes;
}

}  // namespace

std::vector<std::byte> control_message(ControlKind kind, bool flag, std::uint64_t number) {
  ControlRecord record = record_of(kind);
  record.flag = flag ? 1 : 0;
  record.number = number;
  return bytes_of(record);
}

std::vector<std::byte> control_message(ControlKind kind, const Error& error) {
  ControlRecord record = record_of(kind);
  record.code = static_cast<std::int32_t>(error.code());
  record.origin_rank = error.origin_rank();
  std::vector<std::byte> bytes = bytes_of(record);
  const std::string_view text = std::string_view(error.what()).substr(0, kMaxControlText);
  append(bytes, text.data(), text.size());
  return bytes;
}

std::vector<std::byte> control_message(ControlKind kind, std::span<const Wait> waits) {
  std::vector<std::byte> bytes = bytes_of(record_of(kind));
  for (const Wait& wait : waits) {
    const std::string_view name = std::string_view(wait.group).substr(0, kMaxControlText / 4);
    const std::size_t missing = std::min(wait.missing.size(), kMostMissing);
    const WaitRecord record{.self = wait.self,
                            .sequence = wait.stamp.sequence,
                            .size = wait.stamp.size,
                            .arguments = wait.stamp.arguments,
                            .seconds = wait.seconds,
                            .collective = static_cast<std::int32_t>(wait.stamp.collective),
                            .name_bytes = static_cast<std::int32_t>(name.size()),
                            .missing = static_cast<std::int32_t>(missing),
                            .at_end = wait.at_end ? 1 : 0};
    const std::size_t list = missing * sizeof(NumberedRank);
    if (bytes.size() + sizeof record + name.size() + list > kMaxControlText) {
      break;
    }
    append(bytes, &record, sizeof record);
    append(bytes, name.data(), name.size());
    append(bytes, wait.missing.data(), list);
  }
  return bytes;
}

std::vector<std::byte> control_message(ControlKind kind, std::span<const std::byte> body) {
  std::vector<std::byte> bytes = bytes_of(record_of(kind));
  append(bytes, body.data(), body.size());
  return bytes;
}

ControlRecord read_record(const Letter& letter) {
  ControlRecord record;
  if (letter.bytes.size() < sizeof record) {
    fail(ErrorCode::kComm, "rank {} sent a control message of {} bytes", letter.from,
         letter.bytes.size());
  }
  std::memcpy(&record, letter.bytes.data(), sizeof record);
  if (record.magic != kControlMagic || record.version != kControlVersion) {
    fail(ErrorCode::kComm,
         "rank {} sent a control message with magic {:x} and version {}; do all ranks run the same "
         "version of Weft?",
         letter.from, record.magic, record.version);
  }
  return record;
}

std::span<const std::byte> body_of(const Letter& letter) {
  return std::span(letter.bytes).subspan(sizeof(ControlRecord));
}

Error read_error(const Letter& letter) {
  const ControlRecord record = read_record(letter);
  const std::span<const std::byte> text = body_of(letter);
  return {static_cast<ErrorCode>(record.code),
          std::string(reinterpret_cast<const char*>(text.data()), text.size()), record.origin_rank};
}

std::vector<Wait> read_waits(const Letter& letter) {
  std::span<const std::byte> bytes = body_of(letter);
  std::vector<Wait> waits;
  while (bytes.size() >= sizeof(WaitRecord)) {
    WaitRecord record;
    std::memcpy(&record, bytes.data(), sizeof record);
    bytes = bytes.subspan(sizeof record);
    const auto name = static_cast<std::size_t>(record.name_bytes);
    const std::size_t list = static_cast<std::size_t>(record.missing) * sizeof(NumberedRank);
    if (name > kMaxControlText || list > kMaxControlText || name + list > bytes.size()) {
      break;  // of another build: what has been read is of use
    }
    Wait& wait = waits.emplace_back();
    wait.self = record.self;
    wait.group.assign(reinterpret_cast<const char*>(bytes.data()), name);
    wait.stamp = {.sequence = record.sequence,
                  .collective = static_cast<Collective>(record.collective),
                  .size = record.size,
                  .arguments = record.arguments};
    wait.seconds = record.seconds;
    wait.at_end = record.at_end != 0;
    wait.missing.resize(static_cast<std::size_t>(record.missing));
    if (list > 0) {
      std::memcpy(wait.missing.data(), bytes.data() + name, list);
    }
    bytes = bytes.subspan(name + list);
  }
  return waits;
}

}  // namespace weft::comm
