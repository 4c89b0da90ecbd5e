#include "weft/base/hash.h"

#include "weft/base/hash_stream.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t hash_string(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

struct HashStream::State {
  XXH3_state_t xxh3;
};

HashStream::HashStream() : state_(std::make_unique<State>()) {
  reset();
}

HashStream::~HashStream() = default;
HashStream::HashStream(HashStream&&) noexcept = default;
HashStream& HashStream::operator=(HashStream&&) noexcept = default;

void HashStream::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t HashStream::value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

void HashStream::reset() {
  XXH3_64bits_reset(&state_->xxh3);
}

}  // namespace weft
