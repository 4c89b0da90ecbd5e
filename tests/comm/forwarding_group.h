/// ForwardingGroup: a group that does what another one does, but for what a test overrides.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "weft/comm/communicator.h"
#include "weft/comm/group.h"

namespace weft::comm::testing {

/// `Under` is a Group or a Communicator. Left to the test: exchange(), how groups are made, and
/// activity().
template <typename Under>
class ForwardingGroup : public Group {
 public:
  explicit ForwardingGroup(std::unique_ptr<Under> under) : under_(std::move(under)) {}

  [[nodiscard]] int rank() const override { return under_->rank(); }

  [[nodiscard]] int size() const override { return under_->size(); }

  [[nodiscard]] const std::string& name() const override { return under_->name(); }

  [[nodiscard]] int world_rank(int rank) const override { return under_->world_rank(rank); }

  [[nodiscard]] int host(int rank) const override { return under_->host(rank); }

  [[nodiscard]] bool lends() const override { return under_->lends(); }

  void abort(const Error& error) noexcept override { under_->abort(error); }

  void check() const override { under_->check(); }

  [[nodiscard]] double timeout_s() const override { return under_->timeout_s(); }

  void say_alive() noexcept override { under_->say_alive(); }

 protected:
  [[nodiscard]] Under& under() { return *under_; }

  /// Returns the communicator that forwards for a new group of these members.
  [[nodiscard]] std::unique_ptr<Communicator> split(const SubgroupOptions& options)
    requires std::is_same_v<Under, Communicator>
  {
    const auto place = std::find(options.members.begin(), options.members.end(), rank());
    return under_->split(static_cast<int>(options.color),
                         static_cast<int>(place - options.members.begin()), "subgroup");
  }

 private:
  std::unique_ptr<Under> under_;
};

}  // namespace weft::comm::testing
