#include "weft/comm/waits.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include <fmt/format.h>

namespace weft::comm {
namespace {

std::string name_of(const NumberedRank& rank) {
  return rank.in_group == rank.in_world
             ? fmt::format("rank {}", rank.in_group)
             : fmt::format("rank {} (world rank {})", rank.in_group, rank.in_world);
}

std::string list_of(std::span<const NumberedRank> ranks) {
  std::string text;
  for (const NumberedRank& rank : ranks) {
    text += text.empty() ? "" : ", ";
    text += name_of(rank);
  }
  return text;
}

}  // namespace

Wait find_fault(const Wait& first, std::span<const Wait> all) {
  std::map<int, std::vector<const Wait*>> waits_of;
  for (const Wait& wait : all) {
    waits_of[wait.self.in_world].push_back(&wait);
  }
  std::vector<const Wait*> way = {&first};
  std::set<int> seen;
  std::set<int> at_fault;
  for (std::size_t i = 0; i < way.size(); ++i) {
    for (const NumberedRank& rank : way[i]->missing) {
      if (!seen.insert(rank.in_world).second) {
        continue;
      }
      const auto own = waits_of.find(rank.in_world);
      if (own == waits_of.end()) {
        at_fault.insert(rank.in_world);
      } else {
        way.insert(way.end(), own->second.begin(), own->second.end());
      }
    }
  }
  if (at_fault.empty()) {
    return **std::min_element(way.begin(), way.end(), [](const Wait* a, const Wait* b) {
      return a->missing.size() < b->missing.size();
    });
  }
  const auto is_at_fault = [&](const NumberedRank& rank) {
    return at_fault.contains(rank.in_world);
  };
  const auto faults = [&](const Wait* wait) {
    return std::count_if(wait->missing.begin(), wait->missing.end(), is_at_fault);
  };
  Wait found = **std::min_element(way.begin(), way.end(), [&](const Wait* a, const Wait* b) {
    const auto more = faults(a) - faults(b);
    return more != 0 ? more > 0 : a->missing.size() < b->missing.size();
  });
  found.seconds = first.seconds;
  std::erase_if(found.missing, [&](const NumberedRank& rank) { return !is_at_fault(rank); });
  return found;
}

Error timed_out(const Wait& wait, std::span<const int> silent) {
  std::vector<NumberedRank> unheard;
  for (const NumberedRank& rank : wait.missing) {
    if (std::find(silent.begin(), silent.end(), rank.in_world) != silent.end()) {
      unheard.push_back(rank);
    }
  }
  const std::string lost =
      unheard.empty() ? ""
                      : fmt::format(" ({} did not answer when asked: stopped, or out of reach)",
                                    list_of(unheard));
  if (wait.at_end) {
    return {ErrorCode::kTimeout,
            fmt::format("{} has come to the end and waited {:.1f} s for {}{}", name_of(wait.self),
                        wait.seconds, list_of(wait.missing), lost),
            wait.self.in_world};
  }
  return {ErrorCode::kTimeout,
          fmt::format("{}: {} has waited {:.1f} s and these are missing: {}{}; look at what they "
                      "are doing, or raise the timeout if a step takes that long",
                      describe(wait.stamp, wait.group), name_of(wait.self), wait.seconds,
                      list_of(wait.missing), lost),
          wait.self.in_world};
}

}  // namespace weft::comm
