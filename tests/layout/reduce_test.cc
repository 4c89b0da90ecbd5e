// Lengths of the dense all-reduce's buffers: what its objects have of their device, some by hand,
// and a reduce in each form, which AddressSanitizer watches.
#include "weft/layout/reduce.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER

namespace weft::layout {
namespace {

/// Compares the buffers of all ranks on these hosts. Their memory is lent inside a process.
void compare(const std::vector<std::int64_t>& hosts, comm::Form form, ReduceShape shape) {
  shape.ranks = std::ssize(hosts);
  shape.hosts = form == comm::Form::kHierarchical ? hosts : std::vector<std::int64_t>();
  for (const std::int64_t floats : {0, 3, 1003, 70'000}) {
    shape.floats = floats;
    std::vector<std::int64_t> counted(hosts.size());
    comm::run_local(
        static_cast<int>(hosts.size()), {.hosts = {hosts.begin(), hosts.end()}},
        [&](comm::Communicator& world) {
          const auto group = world.duplicate("dense", form);
          const auto device =
              make_device({.kind = DeviceKind::kCpu, .threads = shape.error_feedback ? 2 : 1});
          comm::OrderedAllReduce reduce(*group, *device, shape.parts, floats,
                                        {.codec = {.format = shape.format, .group = shape.group},
                                         .error_feedback = shape.error_feedback,
                                         .crossing = shape.crossing});
          counted[static_cast<std::size_t>(world.rank())] = device->memory_use();
          for (std::int64_t i = 0; i < reduce.num_partials(); ++i) {
            std::fill_n(reduce.partial(i), floats, 1.0F);
          }
          Context ctx{.device = device.get(), .pool = &device->pool()};
          std::vector<float> sums(static_cast<std::size_t>(floats));
          const auto all = static_cast<std::size_t>(reduce.num_partials());
          reduce.run(ctx, std::vector<std::uint8_t>(all, 1), sums.data());
        });
#if defined(WEFT_ADDRESS_SANITIZER)
    continue;  // large blocks are not mapped by themselves, so other bytes are counted
#endif
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      shape.rank = static_cast<std::int64_t>(rank);
      EXPECT_EQ(reduce_buffers(shape).counted_bytes(), counted[rank])
          << "rank " << rank << " of " << hosts.size() << ", " << floats << " floats, "
          << shape.parts << " parts, " << to_string(shape.format)
          << (shape.error_feedback ? " with feedback" : "")
          << (shape.hosts.empty() ? "" : ", hierarchical")
          << (shape.crossing == Crossing::kRelayed ? ", relayed" : "");
    }
  }
}

TEST(LayoutOfTheReduce, IsWhatItsFormsTake) {
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
          ReduceShape relayed = shape;
          relayed.crossing = Crossing::kRelayed;
          compare(hosts, comm::Form::kHierarchical, relayed);
        }
      }
    }
  }
}

// 8 parts on 2 ranks, 100 floats: each rank has one partial sum of 4 parts, and half of the floats.
TEST(LayoutOfTheReduce, HasTheBytesThatArithmeticSays) {
  ReduceShape shape{.ranks = 2, .floats = 100};
  ReduceBuffers buffers = reduce_buffers(shape);
  EXPECT_EQ(buffers.partials, 400);
  EXPECT_EQ(buffers.received, 0) << "read where it is";
  EXPECT_EQ(buffers.waiting, 0) << "two sums make the total at once";
  shape.lent = false;
  EXPECT_EQ(reduce_buffers(shape).received, 200) << "the other's half";
  shape.format = CodecFormat::kBf16;
  shape.error_feedback = true;
  buffers = reduce_buffers(shape);
  EXPECT_EQ(buffers.sent, 100) << "50 codes of 2 bytes";
  EXPECT_EQ(buffers.received, 100);
  EXPECT_EQ(buffers.crossed, 200) << "decoded";
  EXPECT_EQ(buffers.total, 200);
  EXPECT_EQ(buffers.total_code, 100);
  EXPECT_EQ(buffers.partial_residuals, 400);
  EXPECT_EQ(buffers.total_residual, 200);
  // Two hosts of two ranks: a rank acts for its own slice and for one of the other host's.
  ReduceShape on_hosts{.ranks = 4, .floats = 100, .hosts = {0, 0, 1, 1}};
  buffers = reduce_buffers(on_hosts);
  EXPECT_EQ(buffers.partials, 400);
  EXPECT_EQ(buffers.host_sums, 200) << "one sum, 50 floats";
  EXPECT_EQ(buffers.crossed, 100) << "the other host's, of the own slice";
  EXPECT_EQ(buffers.passed, 0);
  // Its relay acts for both of the other host's, and passes on what comes for the host's other one.
  on_hosts.crossing = Crossing::kRelayed;
  buffers = reduce_buffers(on_hosts);
  EXPECT_EQ(buffers.host_sums, 300);
  EXPECT_EQ(buffers.crossed, 100);
  EXPECT_EQ(buffers.passed, 100);
  on_hosts.rank = 1;
  buffers = reduce_buffers(on_hosts);
  EXPECT_EQ(buffers.host_sums, 100);
  EXPECT_EQ(buffers.passed, 0);
}

}  // namespace
}  // namespace weft::layout
