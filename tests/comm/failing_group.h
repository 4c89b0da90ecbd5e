/// A group that fails on one rank before one of its exchanges, those of its subgroups included: for
/// losing a rank in the middle of a collective that is several exchanges.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "weft/comm/communicator.h"
#include "weft/comm/group.h"

namespace weft::comm::testing {

/// Shared by a group and its subgroups.
struct Failure {
  int after = -1;              ///< exchanges that still go well; negative: all
  std::function<void()> fail;  ///< returns where the rank is only late
};

class FailingGroup final : public Group {
 public:
  FailingGroup(std::unique_ptr<Communicator> under, std::shared_ptr<Failure> failure)
      : under_(std::move(under)), failure_(std::move(failure)) {}

  [[nodiscard]] int rank() const override { return under_->rank(); }

  [[nodiscard]] int size() const override { return under_->size(); }

  [[nodiscard]] const std::string& name() const override { return under_->name(); }

  [[nodiscard]] int world_rank(int rank) const override { return under_->world_rank(rank); }

  [[nodiscard]] int host(int rank) const override { return under_->host(rank); }

  [[nodiscard]] bool lends() const override { return under_->lends(); }

  void exchange(const Exchange& call) override {
    if (failure_->after >= 0 && failure_->after-- == 0) {
      failure_->fail();
    }
    Context ctx{.device = nullptr, .pool = call.pool};
    under_->exchange_lent(ctx, call.send, call.recv, call.read);
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    int key = 0;
    while (options.members[static_cast<std::size_t>(key)] != rank()) {
      ++key;
    }
    return std::make_unique<FailingGroup>(
        under_->split(static_cast<int>(options.color), key, "subgroup"), failure_);
  }

  void abort(const Error& error) noexcept override { under_->abort(error); }

  void check() const override { under_->check(); }

  [[nodiscard]] double timeout_s() const override { return under_->timeout_s(); }

  void say_alive() noexcept override { under_->say_alive(); }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  std::unique_ptr<Communicator> under_;
  std::shared_ptr<Failure> failure_;
  ActivityLog activity_;
};

}  // namespace weft::comm::testing
