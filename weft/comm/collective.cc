#include "weft/comm/collective.h"

#include <fmt/format.h>

namespace weft::comm {

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kSplit:
      return "split";
  }
  return "unknown collective";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown operation";
}

Traffic::Entry Traffic::total() const {
  Entry sum;
  for (const Entry& entry : by_collective) {
    sum.calls += entry.calls;
    sum.messages += entry.messages;
    sum.bytes += entry.bytes;
  }
  return sum;
}

std::string describe(const Stamp& stamp, std::string_view group) {
  return fmt::format("{} #{} of group '{}'", to_string(stamp.collective), stamp.sequence, group);
}

}  // namespace weft::comm
