#include "weft/kernels/distinct_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::kernels {

void reference::find_distinct_rows(Context& /*ctx*/, std::span<const DistinctJob> jobs) {
  for (const DistinctJob& job : jobs) {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> shifts;
    for (const Bags& bags : job.lists) {
      const std::int64_t begin = bags.bags == 0 ? 0 : bags.offsets[0];
      shifts.push_back(std::ssize(ids) - begin);
      ids.insert(ids.end(), bags.ids + begin, bags.ids + begin + bags.num_ids());
    }
    const std::int64_t n = std::ssize(ids);
    if (n > std::numeric_limits<std::int32_t>::max() - 1) {
      fail(ErrorCode::kConfig, "{} ids of one table on one rank in a step, more than 2^31 - 2", n);
    }
    std::vector<std::int64_t> rows = ids;
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    const DistinctBuffers::Arrays to = job.buffers->resize(n, shifts.size());
    std::copy(shifts.begin(), shifts.end(), to.shifts);
    std::copy(rows.begin(), rows.end(), to.rows);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto row = std::lower_bound(rows.begin(), rows.end(), ids[at(i)]);
      to.places[i] = static_cast<std::int32_t>(row - rows.begin());
    }
    *job.distinct = {.num_rows = std::ssize(rows),
                     .num_ids = n,
                     .rows = to.rows,
                     .places = to.places,
                     .shifts = std::span(to.shifts, shifts.size())};
  }
}

void reference::slots_of_places(Context& /*ctx*/, std::span<const PlaceSlots> jobs) {
  for (const PlaceSlots& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      job.out[i] = job.slots[job.places[i]];
    }
  }
}

void reference::slots_of_rows(Context& /*ctx*/, std::span<const RowSlots> jobs) {
  for (const RowSlots& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      job.out[i] = -1;
      for (std::int64_t k = 0; k < job.known; ++k) {
        if (job.known_rows[k] == job.rows[i]) {
          job.out[i] = job.slots[k];
        }
      }
    }
  }
}

}  // namespace weft::kernels
