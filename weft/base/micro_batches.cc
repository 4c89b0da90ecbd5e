#include "weft/base/micro_batches.h"

#include <algorithm>
#include <numeric>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft {

MicroBatches::MicroBatches(std::span<const std::int64_t> sizes) : ends_(sizes.size()) {
  WEFT_CHECK(!sizes.empty() && *std::min_element(sizes.begin(), sizes.end()) > 0,
             "{} sizes of micro-batches, all positive", sizes.size());
  std::inclusive_scan(sizes.begin(), sizes.end(), ends_.begin());
}

Range MicroBatches::parts(const Range& own, std::int64_t index) const {
  const auto end_of = [&](std::int64_t i) {
    return own.begin + (i < 0 ? 0 : own.size() * ends_[at(i)] / ends_.back());
  };
  return {end_of(index - 1), end_of(index)};
}

std::vector<Range> MicroBatches::runs(std::int64_t total, const Range& own) const {
  std::vector<std::int64_t> ends;
  for (const Range& node : maximal_subtrees(total, own)) {
    ends.push_back(node.end);
  }
  for (std::int64_t i = 0; i < count(); ++i) {
    ends.push_back(parts(own, i).end);
  }
  std::sort(ends.begin(), ends.end());
  std::vector<Range> runs;
  std::int64_t begin = own.begin;
  for (const std::int64_t end : ends) {
    if (end > begin) {
      runs.push_back({begin, end});
      begin = end;
    }
  }
  return runs;
}

}  // namespace weft
