// Lengths of the dense all-reduce's buffers against what its objects have of their device.
#include "weft/layout/reduce.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER

namespace weft::layout {
namespace {

/// Of ranks whose hosts are these, all memory of which is lent inside a process.
void compare(const std::vector<std::int64_t>& hosts, comm::Form form, ReduceShape shape) {
  shape.ranks = std::ssize(hosts);
  shape.hosts = form == comm::Form::kHierarchical ? hosts : std::vector<std::int64_t>();
  for (const std::int64_t floats : {0, 3, 1003, 70'000}) {
    shape.floats = floats;
    std::vector<std::int64_t> counted(hosts.size());
    comm::run_local(static_cast<int>(hosts.size()), {.hosts = {hosts.begin(), hosts.end()}},
                    [&](comm::Communicator& world) {
                      const auto group = world.duplicate("dense", form);
                      const auto device = make_device(
                          {.kind = DeviceKind::kCpu, .threads = shape.error_feedback ? 2 : 1});
                      const comm::OrderedAllReduce reduce(
                          *group, *device, shape.parts, floats,
                          {.codec = {.format = shape.format, .group = shape.group},
                           .error_feedback = shape.error_feedback});
                      counted[static_cast<std::size_t>(world.rank())] = device->memory_use();
                    });
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      shape.rank = static_cast<std::int64_t>(rank);
      EXPECT_EQ(reduce_buffers(shape).counted_bytes(), counted[rank])
          << "rank " << rank << " of " << hosts.size() << ", " << floats << " floats, "
          << shape.parts << " parts, " << to_string(shape.format)
          << (shape.error_feedback ? " with feedback" : "")
          << (shape.hosts.empty() ? "" : ", hierarchical");
    }
  }
}

TEST(LayoutOfTheReduce, IsWhatItsFormsTake) {
#if defined(WEFT_ADDRESS_SANITIZER)
  GTEST_SKIP() << "large blocks are not mapped by themselves, so other bytes are counted";
#endif
  for (const std::vector<std::int64_t>& hosts :
       std::vector<std::vector<std::int64_t>>{{0},
                                              {0, 0},
                                              {0, 0, 0},
                                              {0, 0, 1, 1},
                                              {0, 1, 1},
                                              {0, 0, 0, 1, 1},
                                              {0, 1, 0, 1, 2},
                                              {0, 0, 1, 1, 2, 2, 3, 3}}) {
    for (const std::int64_t parts : {8, 13}) {
      for (const auto format : {CodecFormat::kFp32, CodecFormat::kBf16, CodecFormat::kInt4}) {
        for (const bool feedback : {false, true}) {
          const ReduceShape shape{
              .parts = parts, .format = format, .group = 17, .error_feedback = feedback};
          compare(hosts, comm::Form::kFlat, shape);
          compare(hosts, comm::Form::kHierarchical, shape);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::layout
