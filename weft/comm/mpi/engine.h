/// Private to comm/mpi: the progress thread as its users see it. Does not include <mpi.h>.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/carrier.h"
#include "weft/comm/collective.h"
#include "weft/comm/group.h"
#include "weft/comm/messages.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::comm {

/// One exchange as its caller describes it.
struct ExchangeCall {
  GroupNames names;
  std::int64_t group = 0;  ///< equal on all members, and no other group of any of them has it
  int self = 0;            ///< rank in the group
  Stamp stamp;
  std::span<const Lane> send;
  std::span<const Lane> recv;
  ThreadPool* pool = nullptr;                                ///< for packing; may be null
  Arrivals* arrivals = nullptr;                              ///< may be null
  std::optional<std::span<const int>> peers = std::nullopt;  ///< as Exchange::peers
};

/// Where a group's exchanges take place, one at a time. Holds the buffers of
/// headers, which grow with the lanes that an exchange uses.
class Channel {
 public:
  virtual ~Channel() = default;

  /// Sends, and receives into `recv`; does nothing about what the rank sends to itself.
  virtual void exchange(const ExchangeCall& call) = 0;
};

class Engine {
 public:
  /// Starts the progress thread, which initialises MPI.
  static std::unique_ptr<Engine> start(const MpiOptions& options);

  /// Finalises MPI if finish() has not.
  virtual ~Engine() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The host of rank `rank`, numbered by the lowest of its ranks.
  [[nodiscard]] virtual int host(int rank) const = 0;

  /// What MPI has chosen to carry messages.
  [[nodiscard]] virtual const Carrier& carrier() const = 0;

  /// A channel for a group. Throws Error(kResource) when MPI has no tag for it.
  virtual std::unique_ptr<Channel> make_channel(std::int64_t group) = 0;

  /// Makes `error` the world's unless there is one. Any thread.
  virtual void abort(const Error& error) noexcept = 0;

  /// Throws the world's error if there is one.
  virtual void check() const = 0;

  /// How long an exchange waits for peers of which nothing is heard.
  [[nodiscard]] virtual double timeout_s() const = 0;

  /// As Communicator::say_alive. Any thread.
  virtual void say_alive() noexcept = 0;

  /// See Communicator::explain_lost_ranks(). Any thread may call it.
  virtual void explain_lost_ranks(LostRanksText text) = 0;

  /// As MpiSession::finish.
  virtual void finish() = 0;
};

}  // namespace weft::comm
