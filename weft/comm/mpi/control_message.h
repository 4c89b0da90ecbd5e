/// Private to comm/mpi: the messages of Control as they travel. All are short enough for an eager
/// message, so that receiving one never waits for its sender; the roll of more than 12,000 ranks
/// is longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/mpi/post.h"
#include "weft/comm/waits.h"

namespace weft::comm {

/// Of an error's text as much travels, and as much is the world's error everywhere.
inline constexpr std::size_t kMaxControlText = 3000;

/// What a message says.
enum class ControlKind : std::uint32_t {
  kReport = 1,         ///< an error; up the tree to rank 0
  kLate = 2,           ///< a wait that has lasted too long; up the tree to rank 0
  kVerdict = 3,        ///< the world's error; to all
  kAsk = 4,            ///< what do you wait for? from rank 0
  kAnswer = 5,         ///< the waits of a rank; to rank 0
  kAlive = 6,          ///< some rank is alive in long work; to all
  kAskEnd = 7,         ///< tell me when you have come to the end
  kHasEnded = 8,       ///< this rank has
  kEnd = 9,            ///< all ranks of this one's subtree have come to the end; up the tree
  kAllHaveEnded = 10,  ///< down the tree
  kRoll = 11,          ///< after an error: which ranks are known to be there; to all
};

/// What every message begins with.
struct ControlRecord {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t kind = 0;
  std::int32_t flag = 0;  ///< kEnd, kAllHaveEnded: there is an error; kAsk: about the end
  std::int32_t code = 0;  ///< of an error
  std::int32_t origin_rank = 0;
  std::uint64_t number = 0;  ///< of kAlive

  [[nodiscard]] bool is(ControlKind wanted) const {
    return kind == static_cast<std::uint32_t>(wanted);
  }
};

/// A message without a body.
std::vector<std::byte> control_message(ControlKind kind,
                                       bool flag = false,
                                       std::uint64_t number = 0);

/// A message with an error.
std::vector<std::byte> control_message(ControlKind kind, const Error& error);

/// A message with as many of the waits as it has room for.
std::vector<std::byte> control_message(ControlKind kind, std::span<const Wait> waits);

/// A message with bytes of any meaning.
std::vector<std::byte> control_message(ControlKind kind, std::span<const std::byte> body);

/// The begin of a message. Throws Error(kComm) where it is none of this version.
ControlRecord read_record(const Letter& letter);

/// What follows it.
std::span<const std::byte> body_of(const Letter& letter);

Error read_error(const Letter& letter);

std::vector<Wait> read_waits(const Letter& letter);

}  // namespace weft::comm
