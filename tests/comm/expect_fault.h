/// expect_named() says what every rank must be told when one of them does something wrong.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "tests/comm/faulty_world.h"

namespace weft::comm::testing {

/// Fails unless every rank, the faulty one apart where it has left, ended with one error: its own
/// where it threw, else one that names it alone. Of a rank that does not come it names the exchange
/// to which it did not; of one that has left, the exchange of the rank that saw it first.
inline void expect_named(const Fault& fault, const FaultOutcome& outcome, const std::string& what) {
  SCOPED_TRACE(fmt::format("{}: rank {} before {}", what, fault.rank, outcome.hit));
  ASSERT_NE(outcome.hit, "") << "nothing happened";
  const auto faulty = static_cast<std::size_t>(fault.rank);
  const std::string& told = outcome.seen[faulty == 0 ? 1 : 0];
  for (std::size_t rank = 0; rank < outcome.seen.size(); ++rank) {
    const bool left = rank == faulty && fault.kind == FaultKind::kLeaves;
    ASSERT_EQ(outcome.seen[rank], left ? "" : told) << "rank " << rank;
  }
  if (fault.kind == FaultKind::kThrows) {
    EXPECT_EQ(told, kOwnError);
    EXPECT_EQ(outcome.origins, std::vector<int>(outcome.seen.size(), fault.rank));
    return;
  }
  const bool leaves = fault.kind == FaultKind::kLeaves;
  EXPECT_TRUE(leaves || told.starts_with(outcome.hit + ":")) << told;
  const std::string before = leaves ? "waits for " : "these are missing: ";
  const std::string after = leaves ? ", which has ended" : "; look at";
  const std::size_t begin = told.find(before);
  ASSERT_NE(begin, std::string::npos) << told;
  const std::string named =
      told.substr(begin + before.size(), told.find(after) - begin - before.size());
  const std::string in_world = fmt::format("(world rank {})", fault.rank);
  EXPECT_TRUE(named == fmt::format("rank {}", fault.rank) ||
              (named.ends_with(in_world) && named.find(',') == std::string::npos))
      << told;
  const ErrorCode code = leaves ? ErrorCode::kComm : ErrorCode::kTimeout;
  EXPECT_EQ(outcome.codes[faulty == 0 ? 1 : 0], static_cast<int>(code)) << told;
}

}  // namespace weft::comm::testing
