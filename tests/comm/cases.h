/// Checks of collectives that hold for every backend: called on all ranks with the same arguments.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/comm/communicator.h"

namespace weft::comm::testing {

/// Every collective with `count` elements, against closed forms.
void check_collectives(Communicator& world, std::int64_t count);

/// exchange() and exchange_lent() of pieces in runs, strided and picked rows, at either end,
/// against a plain copy; also that nothing between the rows is touched.
void check_rows(Communicator& world, std::uint64_t seed);

/// The traffic counters against the formulas of communicator.h.
void check_traffic(Communicator& world);

/// Of the hierarchical form: what crosses hosts, in one message for each pair of them.
void check_crossings(Communicator& comm);

/// The same of OrderedAllReduce, all ranks together.
void check_reduce_crossings(Communicator& comm, std::int64_t parts);

/// split and duplicate, and collectives in the new groups.
void check_groups(Communicator& world);

/// Two streams use two communicators at the same time.
void check_concurrent_groups(Communicator& world);

/// How slices of sums can cross between the hosts of a group.
std::vector<Crossing> crossings_of(const Communicator& comm);

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Returns the first two values where a sanitizer makes a case several times as long, else all.
inline std::vector<std::int64_t> fewer_if_slow(std::vector<std::int64_t> values) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  values.resize(2);
#endif
  return values;
}

/// OrderedAllReduce, in all its crossings, against a plain tree over all parts, bit by bit; all,
/// some and no terms.
void check_ordered_reduce(Communicator& world, std::int64_t parts, std::int64_t count);

/// all_reduce_parts against sum_parts.
void check_parts(Communicator& world, std::int64_t parts);

}  // namespace weft::comm::testing
