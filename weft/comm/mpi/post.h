/// Private to comm/mpi: what carries the messages of Control.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace weft::comm {

/// A message that has come.
struct Letter {
  int from = 0;
  std::vector<std::byte> bytes;
};

/// Messages between ranks of the world, and the clock by which Control waits for them. One thread.
class Post {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Post() = default;

  /// Sends a message to another rank and returns at once. Two messages to one rank arrive in order.
  virtual void send(int to, std::vector<std::byte> bytes) = 0;

  /// Returns the next message that has come, if any.
  virtual std::optional<Letter> receive() = 0;

  /// How many messages have not gone yet.
  [[nodiscard]] virtual std::size_t backlog() const = 0;

  [[nodiscard]] virtual Clock::time_point now() const = 0;
};

}  // namespace weft::comm
