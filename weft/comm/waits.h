/// Private to comm/: who is at fault where ranks wait for ranks that wait themselves. In a tree or
/// a relay most ranks wait for one that is not late, but waits for another one; all began at about
/// the same time, so whose patience ends first says nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/collective.h"

namespace weft::comm {

/// A rank as its group numbers it, and as the world does.
struct NumberedRank {
  int in_group = 0;
  int in_world = 0;

  friend bool operator==(const NumberedRank&, const NumberedRank&) = default;
};

/// A rank that waits for others: in an exchange, or for all to come to the end.
struct Wait {
  NumberedRank self;
  std::string group;
  Stamp stamp;
  double seconds = 0.0;  ///< so far
  std::vector<NumberedRank> missing;
  bool at_end = false;  ///< for the end: stamp and group say nothing
};

/// Returns the wait to report when the patience of `first` has ended and `all` ranks that answer
/// wait like this. From `first` on it follows the missing ranks that wait themselves, to those that
/// do not: they are at fault. What is returned is the wait on this way that misses most of them,
/// among equals the one that misses fewest others, with those at fault alone as missing and the
/// seconds of `first`. Where ranks wait for each other in a circle, it is the wait that misses the
/// fewest ranks; `first`, among equals. O(missing ranks of all waits that are followed), times
/// log W.
Wait find_fault(const Wait& first, std::span<const Wait> all);

/// The error of such a wait: kTimeout, of the rank that waits, naming the exchange, or the end, and
/// who is missing. `silent`: ranks of the world that did not answer when they were asked.
Error timed_out(const Wait& wait, std::span<const int> silent = {});

}  // namespace weft::comm
