/// The hash of bytes that come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft {

/// XXH3 64-bit of bytes that come in pieces of any sizes: value() is hash_bytes() (hash.h) of all
/// of them together. Used by one thread at a time. Memory: about 600 bytes.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(HashStream&&) noexcept;
  HashStream& operator=(HashStream&&) noexcept;

  /// The next bytes.
  void add(std::span<const std::byte> bytes);

  /// Of all bytes since the beginning, or since the last reset(). More may follow.
  [[nodiscard]] std::uint64_t value() const;

  /// Begins anew.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
