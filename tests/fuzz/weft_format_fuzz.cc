// Any bytes as a weft file: Error(kData) or a log that can be read, never a crash. The bytes are
// tried as they are and with header and footer checksums made right, so that the fuzzer gets past
// them; and as a column of bags on their own.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"

namespace {

using weft::data::layout::kTrailerBytes;

void read_all(std::span<const std::byte> bytes) {
  try {
    const auto source = weft::data::open_weft_bytes(bytes, "fuzz");
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < source->size() && i < 100'000; ++i) {
      ids.push_back(i);
    }
    weft::data::RawBlock block;
    source->read(ids, block);
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kData) {
      throw;
    }
  }
}

void repair(std::vector<std::byte>& bytes) {
  const auto put = [&](std::size_t at, std::uint64_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  if (bytes.size() < 80) {
    return;
  }
  const std::size_t header = weft::data::layout::load<std::uint32_t>(bytes.data() + 12);
  if (header >= 40 && header <= bytes.size()) {
    put(header - 8, weft::hash_bytes(std::span(bytes).first(header - 8)));
  }
  const std::size_t trailer = bytes.size() - kTrailerBytes;
  const auto footer = weft::data::layout::load<std::uint64_t>(bytes.data() + trailer);
  if (footer <= trailer) {
    put(trailer + 16, weft::hash_bytes(std::span(bytes).subspan(footer, trailer - footer)));
  }
}

void read_bags(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  const int flags = static_cast<int>(bytes[0]);
  const weft::data::Schema::Categorical column{"c", (flags & 1) != 0, (flags & 2) != 0};
  try {
    const std::int64_t samples = flags >> 2;
    const auto view = weft::data::layout::decode_bags(bytes.subspan(1), samples, column, "fuzz");
    [[maybe_unused]] volatile std::int64_t sink = 0;
    for (std::uint32_t i = 0; i < view.offset(static_cast<std::size_t>(samples)); ++i) {
      sink = view.id(i);
    }
  } catch (const weft::Error&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  read_all(bytes);
  std::vector<std::byte> repaired(bytes.begin(), bytes.end());
  repair(repaired);
  read_all(repaired);
  read_bags(bytes);
  return 0;
}
