/// What a backend is: one primitive, the exchange, from which Communicator builds every collective.
/// Programs use Communicator; only backends and their tests include this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/activity.h"
#include "weft/comm/carrier.h"
#include "weft/comm/collective.h"
#include "weft/trace/recorder.h"

namespace weft::comm {

/// Options of Group::make_group.
struct SubgroupOptions {
  std::string name;
  std::vector<int> members;    ///< ranks of the parent, in the order of their new ranks
  std::uint64_t sequence = 0;  ///< of the collective call on the parent that makes the group
  std::int64_t color = 0;      ///< tells apart the groups made by one call
  std::int64_t token = 0;      ///< the largest propose_token() over all ranks of the parent
};

/// When the peers of an exchange were there (trace::now_ns).
struct Arrivals {
  std::int64_t last_ns = 0;  ///< the last peer; left alone where there is none

  /// [W], where data comes as messages of their own: of ranks that sent any. Otherwise left alone.
  std::span<trace::Arrival> peers;
};

/// What a rank sends to different ranks.
enum class Payload : std::uint8_t {
  kDistinct,
  kSame,  ///< to each the same bytes, where it sends any
};

/// One exchange of a group, as one rank describes it.
struct Exchange {
  Stamp stamp;
  std::span<const Lane> send;    ///< [W], to each rank
  std::span<const Lane> recv;    ///< [W], from each rank; without memory where the group lends
  ThreadPool* pool = nullptr;    ///< for copies; may be null
  LaneReader read;               ///< called once, with what has arrived
  Arrivals* arrivals = nullptr;  ///< to be filled in before `read`; may be null
  Payload payload = Payload::kDistinct;

  /// The ranks with a lane that is not silent, ascending and each once, where the caller knows
  /// them. The lanes of other ranks are silent in both directions, and no backend need look at
  /// them.
  std::optional<std::span<const int>> peers = std::nullopt;

  /// Calls visit(rank) for the ranks whose lanes are to be looked at, in ascending order: `peers`
  /// where they are known, otherwise all.
  template <typename Visit>
  void for_peers(const Visit& visit) const {
    for (std::size_t i = 0; i < (peers ? peers->size() : send.size()); ++i) {
      visit(peers ? static_cast<std::size_t>((*peers)[i]) : i);
    }
  }
};

/// One group of ranks. One thread at a time.
class Group {
 public:
  virtual ~Group() = default;

  /// This rank's number in the group, the number of ranks W, and the group's name in messages.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;

  /// The world's number of rank `rank` of this group.
  [[nodiscard]] virtual int world_rank(int rank) const = 0;

  /// The host of rank `rank`: equal numbers where ranks share memory.
  [[nodiscard]] virtual int host(int rank) const = 0;

  /// Whether what arrives is read where its sender holds it. Equal on all ranks.
  [[nodiscard]] virtual bool lends() const = 0;

  /// Sends send[p] to rank p and calls `read` with the lanes [W] that have come, of the sizes of
  /// `recv`: the sender's own memory where the group lends, recv[p] itself where it does not, and
  /// always send[r] for the rank r itself. Where call.peers are known, `read` looks at their lanes
  /// alone: those of others may point to memory that is gone. Blocks until `read` has returned here
  /// and all of this rank's memory may be reused. Checks that peers' stamps and sizes agree. An
  /// error (out of step, timeout, another rank's) is the whole world's: every rank throws the same.
  /// An exception of `read` ends this rank's exchange; where the group lends it is the world's
  /// error at once.
  virtual void exchange(const Exchange& call) = 0;

  /// A number for agreeing on the identity of a new group.
  virtual std::int64_t propose_token() = 0;

  /// The new group; called by its members only, after they have agreed on the options.
  virtual std::unique_ptr<Group> make_group(const SubgroupOptions& options) = 0;

  /// Makes `error` the world's, unless one exists already. Does not throw.
  virtual void abort(const Error& error) noexcept = 0;

  /// Throws the world's error if there is one.
  virtual void check() const = 0;

  /// How long a rank waits for another one of which it hears nothing.
  [[nodiscard]] virtual double timeout_s() const = 0;

  /// As Communicator::say_alive. Any thread.
  virtual void say_alive() noexcept = 0;

  /// See Communicator::explain_lost_ranks(). A backend whose ranks end together ignores it.
  virtual void explain_lost_ranks(LostRanksText /*text*/) {}

  /// What carries messages between ranks; empty where they are threads.
  [[nodiscard]] virtual Carrier carrier() const { return {}; }

  /// Where this rank notes what it is doing.
  [[nodiscard]] virtual ActivityLog& activity() = 0;
};

}  // namespace weft::comm
