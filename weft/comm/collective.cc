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
    case Collective::kMerge:
      return "merge";
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

std::string_view to_string(Form form) {
  return form == Form::kFlat ? "flat" : "hierarchical";
}

Traffic::Entry& Traffic::Entry::operator+=(const Entry& other) {
  calls += other.calls;
  messages += other.messages;
  bytes += other.bytes;
  cross_host_messages += other.cross_host_messages;
  cross_host_bytes += other.cross_host_bytes;
  return *this;
}

Traffic::Entry Traffic::total() const {
  Entry sum;
  for (const Entry& entry : by_collective) {
    sum += entry;
  }
  return sum;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (std::size_t i = 0; i < by_collective.size(); ++i) {
    by_collective[i] += other.by_collective[i];
  }
  return *this;
}

std::string describe(const Stamp& stamp, std::string_view group) {
  return fmt::format("{} #{} of group '{}'", to_string(stamp.collective), stamp.sequence, group);
}

}  // namespace weft::comm
