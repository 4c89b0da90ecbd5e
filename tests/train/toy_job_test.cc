// A whole job on half a backend: a device of kind cuda in host memory, two operations that are
// defined here by the plain loops, and the library's stubs for the rest. The job starts as on a
// GPU and names the first operation that is missing. A binary of its own: it takes the place of
// weft/tensor/no_cuda.cc.
#include <atomic>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/kernels/toy_device.h"
#include "tests/train/job_fixture.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/initial_values.h"
#include "weft/tensor/devices.h"

namespace weft {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options) {
  return std::make_unique<test::ToyDevice>(options.threads);
}

namespace kernels {

namespace {

std::atomic<int> initials = 0;

}  // namespace

void cuda::embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  reference::embedding_bag(ctx, lookups);
}

void cuda::set_initial_rows(Context& ctx, std::span<const InitialRows> jobs) {
  ++initials;
  reference::set_initial_rows(ctx, jobs);
}

}  // namespace kernels

namespace train {
namespace {

TEST(ToyJob, NamesTheFirstMissingOperation) {
  for (const int ranks : {1, 2}) {
    const JobOptions options = job_options(make_job({"train.device=cuda"}));
    kernels::initials = 0;
    const std::string message = message_of([&] { train_on(ranks, options); });
    EXPECT_NE(message.find("operation 'make_workspace' is not there for device cuda"),
              std::string::npos)
        << message;
    EXPECT_GT(kernels::initials, 0) << "tables are initialised before the dense model is made";
  }
}

}  // namespace
}  // namespace train
}  // namespace weft
