// Made-up steps whose figures are known.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/trace/trace_file.h"

namespace weft::trace {

inline constexpr std::int64_t kMs = 1'000'000;

inline Work make_work(
    const std::string& name, Kind kind, double begin_ms, double end_ms, int stream = 101) {
  const auto ns = [](double ms) { return static_cast<std::int64_t>(ms * kMs); };
  return {.name = name,
          .kind = kind,
          .time = {ns(begin_ms), ns(end_ms)},
          .stream = stream,
          .group = {},
          .part = {}};
}

inline Work make_exchange(std::int64_t sequence,
                          double begin_ms,
                          double arrived_ms,
                          double end_ms) {
  Work work = make_work("all_to_all", Kind::kCollective, begin_ms, end_ms);
  work.group = "world";
  work.part = "output_dist";
  work.sequence = sequence;
  work.arrived = static_cast<std::int64_t>(arrived_ms * kMs);
  work.bytes = 1000;
  work.cross_host_bytes = 400;
  return work;
}

inline RankWork make_rank(int rank, double end_ms, std::vector<Work> work) {
  return {.rank = rank,
          .host = "host",
          .steps = {{.number = 5, .time = {0, static_cast<std::int64_t>(end_ms * kMs)}}},
          .work = std::move(work)};
}

/// Two ranks of 10 ms: lookups of 1 and 4 ms, one exchange that moves for 1 ms, then compute.
inline std::vector<RankWork> straggling() {
  return {make_rank(0, 10,
                    {make_work("lookup", Kind::kLookup, 0, 1), make_exchange(7, 1, 4, 5),
                     make_work("forward_backward", Kind::kCompute, 5, 9)}),
          make_rank(1, 10,
                    {make_work("lookup", Kind::kLookup, 0, 4), make_exchange(7, 4, 4, 5),
                     make_work("forward_backward", Kind::kCompute, 5, 9)})};
}

}  // namespace weft::trace
