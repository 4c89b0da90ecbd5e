#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "weft/base/log.h"
#include "weft/comm/group.h"
#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::comm {
namespace {

/// What the groups of a process share.
struct Process {
  std::unique_ptr<Engine> engine;
  ActivityLog activity;
  std::atomic<std::int64_t> next_group = 1;  ///< larger than any group this rank is in
};

class MpiGroup final : public Group {
 public:
  struct Identity {
    std::string name;
    std::vector<int> world_ranks;
    int rank = 0;
    std::int64_t number = 0;
  };

  MpiGroup(Process& process, Identity identity)
      : process_(process),
        identity_(std::move(identity)),
        channel_(process.engine->make_channel(identity_.number)) {}

  [[nodiscard]] int rank() const override { return identity_.rank; }

  [[nodiscard]] int size() const override { return static_cast<int>(identity_.world_ranks.size()); }

  [[nodiscard]] const std::string& name() const override { return identity_.name; }

  [[nodiscard]] int world_rank(int rank) const override {
    return identity_.world_ranks[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] int host(int rank) const override {
    return process_.engine->host(world_rank(rank));
  }

  [[nodiscard]] bool lends() const override { return false; }

  void exchange(const Exchange& call) override {
    const auto self = static_cast<std::size_t>(rank());
    check_own_lane(name(), call.stamp, call.send[self], call.recv[self]);
    if (size() == 1) {
      process_.engine->check();
    } else {
      channel_->exchange({.names = {identity_.name, identity_.world_ranks},
                          .group = identity_.number,
                          .self = identity_.rank,
                          .stamp = call.stamp,
                          .send = call.send,
                          .recv = call.recv,
                          .pool = call.pool,
                          .arrivals = call.arrivals,
                          .peers = call.peers});
    }
    arrived_.resize(call.recv.size());
    call.for_peers([&](std::size_t p) { arrived_[p] = call.recv[p]; });
    arrived_[self] = call.send[self];
    call.read(arrived_);
  }

  std::int64_t propose_token() override { return process_.next_group.load(); }

  /// The number is the largest proposal, so it is new to every member; disjoint groups of one split
  /// may share it, as they have no message in common.
  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    Identity identity{.name = options.name, .world_ranks = {}, .rank = 0, .number = options.token};
    for (std::size_t i = 0; i < options.members.size(); ++i) {
      identity.world_ranks.push_back(world_rank(options.members[i]));
      if (options.members[i] == rank()) {
        identity.rank = static_cast<int>(i);
      }
    }
    process_.next_group.store(options.token + 1);
    return std::make_unique<MpiGroup>(process_, std::move(identity));
  }

  void abort(const Error& error) noexcept override { process_.engine->abort(error); }

  void check() const override { process_.engine->check(); }

  void explain_lost_ranks(LostRanksText text) override {
    process_.engine->explain_lost_ranks(std::move(text));
  }

  [[nodiscard]] double timeout_s() const override { return process_.engine->timeout_s(); }

  void say_alive() noexcept override { process_.engine->say_alive(); }

  [[nodiscard]] Carrier carrier() const override { return process_.engine->carrier(); }

  [[nodiscard]] ActivityLog& activity() override { return process_.activity; }

 private:
  Process& process_;
  Identity identity_;
  std::unique_ptr<Channel> channel_;
  std::vector<Lane> arrived_;
};

std::unique_ptr<Group> make_world(Process& process) {
  std::vector<int> ranks(static_cast<std::size_t>(process.engine->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<MpiGroup>(process, MpiGroup::Identity{.name = "world",
                                                                .world_ranks = std::move(ranks),
                                                                .rank = process.engine->rank(),
                                                                .number = 0});
}

}  // namespace

struct MpiSession::Impl {
  Process process;
  std::unique_ptr<Communicator> world;
  bool finished = false;
};

bool mpi_available() {
  return true;
}

MpiSession::MpiSession(const MpiOptions& options) : impl_(std::make_unique<Impl>()) {
  if (options.max_message_bytes < 1 || options.max_message_bytes > (std::int64_t{1} << 30)) {
    fail(ErrorCode::kUsage, "max_message_bytes of {}; it is between 1 and 1 GiB",
         options.max_message_bytes);
  }
  impl_->process.engine = Engine::start(options);
  impl_->world = std::make_unique<Communicator>(make_world(impl_->process));
}

MpiSession::~MpiSession() {
  try {
    finish();
  } catch (const std::exception& error) {
    try {
      log_message(LogLevel::kError, error.what());
    } catch (...) {  // nobody is left to tell
      return;
    }
  }
}

Communicator& MpiSession::world() {
  return *impl_->world;
}

void MpiSession::run(const std::function<void(Communicator& world)>& body) {
  try {
    body(world());
  } catch (...) {
    world().abort(as_error(std::current_exception(), world().rank()));
  }
  finish();
}

void MpiSession::finish() {
  if (impl_->finished) {
    return;
  }
  impl_->finished = true;
  impl_->process.engine->finish();
}

std::string MpiSession::current_activity() const {
  return impl_->process.activity.describe();
}

}  // namespace weft::comm
