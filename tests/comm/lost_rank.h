/// A rank that is lost in the middle of a step of ranks as threads on made-up hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/failing_group.h"
#include "tests/comm/on_hosts.h"
#include "weft/base/error.h"

namespace weft::comm {

/// Rank `lost` throws before exchange `after` of the second step; returns what the others are told.
/// `make_step(comm)` gives what a rank calls as a step.
template <typename MakeStep>
std::vector<std::string> errors_when_lost(const Hosts& hosts,
                                          int lost,
                                          int after,
                                          const MakeStep& make_step) {
  std::vector<std::string> errors(hosts.size());
  EXPECT_THROW(
      run_local(static_cast<int>(hosts.size()), {.timeout_s = 20.0, .hosts = hosts},
                [&](Communicator& world) {
                  const auto failure = std::make_shared<testing::Failure>();
                  failure->fail = [] { fail(ErrorCode::kData, "the disk is gone"); };
                  Communicator under(
                      std::make_unique<testing::FailingGroup>(world.duplicate("under"), failure));
                  const auto comm = under.duplicate("test", Form::kHierarchical);
                  try {
                    auto step = make_step(*comm);
                    step();
                    failure->after = world.rank() == lost ? after : -1;
                    step();
                    Context ctx;
                    world.barrier(ctx);  // who was through before the loss hears of it here
                  } catch (const Error& error) {
                    errors[static_cast<std::size_t>(world.rank())] = error.what();
                    throw;
                  }
                }),
      Error);
  return errors;
}

}  // namespace weft::comm
