/// A group that fails on one rank before one of its exchanges, those of its subgroups included: for
/// losing a rank in the middle of a collective that is several exchanges.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/comm/forwarding_group.h"
#include "weft/comm/communicator.h"
#include "weft/comm/group.h"

namespace weft::comm::testing {

/// Shared by a group and its subgroups.
struct Failure {
  int after = -1;              ///< exchanges that still go well; negative: all
  std::function<void()> fail;  ///< returns where the rank is only late
};

class FailingGroup final : public ForwardingGroup<Communicator> {
 public:
  FailingGroup(std::unique_ptr<Communicator> under, std::shared_ptr<Failure> failure)
      : ForwardingGroup(std::move(under)), failure_(std::move(failure)) {}

  void exchange(const Exchange& call) override {
    if (failure_->after >= 0 && failure_->after-- == 0) {
      failure_->fail();
    }
    Context ctx{.device = nullptr, .pool = call.pool};
    under().exchange_lent(ctx, call.send, call.recv, call.read);
  }

  std::int64_t propose_token() override { return 0; }

  std::unique_ptr<Group> make_group(const SubgroupOptions& options) override {
    return std::make_unique<FailingGroup>(split(options), failure_);
  }

  [[nodiscard]] ActivityLog& activity() override { return activity_; }

 private:
  std::shared_ptr<Failure> failure_;
  ActivityLog activity_;
};

}  // namespace weft::comm::testing
