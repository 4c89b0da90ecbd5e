// Manifest text from anywhere: it is refused with Error(kCheckpoint) or read; nothing else.
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/error.h"
#include "weft/checkpoint/manifest.h"

namespace {

void read(const std::string& text) {
  try {
    const auto manifest = weft::checkpoint::manifest_from_json(text, "fuzz");
    // What was accepted can be written and is then read as the same.
    const std::string again = weft::checkpoint::manifest_to_json(manifest);
    if (weft::checkpoint::manifest_from_json(again, "again") != manifest) {
      __builtin_trap();
    }
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kCheckpoint) {
      __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(weft::checkpoint::seal_json(text));  // past the checksum
  return 0;
}
