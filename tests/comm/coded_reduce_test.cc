// Sums with a codec over ranks as threads: threads, error feedback, what is not finite, a rank
// lost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/coded_cases.h"
#include "tests/comm/lost_rank.h"
#include "tests/comm/on_hosts.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm {
namespace {

constexpr std::int64_t kParts = 11;

class CodedReduce : public ::testing::TestWithParam<Hosts> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         CodedReduce,
                         ::testing::Values(Hosts{0},
                                           Hosts{0, 0},
                                           Hosts{0, 0, 0},
                                           Hosts{0, 0, 0, 0},
                                           Hosts{0, 0, 0, 0, 0},
                                           Hosts{0, 0, 0, 0, 0, 0},
                                           Hosts{0, 0, 0, 0, 0, 0, 0},
                                           Hosts{0, 0, 0, 0, 0, 0, 0, 0},
                                           Hosts{0, 1, 1},
                                           Hosts{0, 0, 1, 1},
                                           Hosts{0, 0, 0, 1, 1},
                                           Hosts{0, 1, 0, 2, 1},
                                           Hosts{0, 0, 0, 1, 1, 1, 2, 3}));

TEST_P(CodedReduce, IsWithinTwoRoundingsOfTheSum) {
  for (const std::int64_t parts : {std::int64_t{8}, kParts}) {
    for (const std::int64_t count : {0, 1, 5, 1003}) {
      run_on(GetParam(),
             [&](Communicator& comm) { testing::check_coded_reduce(comm, parts, count); });
    }
  }
}

TEST_P(CodedReduce, FeedbackLosesNothingOverSteps) {
  for (const std::int64_t count : {0, 3, 301}) {
    run_on(GetParam(), [&](Communicator& comm) { testing::check_feedback(comm, kParts, count); });
  }
}

/// Sums of some steps on rank 0.
std::vector<float> sums_with(const Hosts& hosts, int threads, std::int64_t group) {
  constexpr std::int64_t kCount = 50021;
  std::vector<float> all;
  run_on(hosts, [&](Communicator& comm) {
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = threads});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    OrderedAllReduce reduce(
        comm, *device, kParts, kCount,
        {.codec = {.format = CodecFormat::kInt8, .group = group}, .error_feedback = true});
    const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
    std::vector<float> out(kCount);
    for (int step = 0; step < 3; ++step) {
      for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
        const auto part = static_cast<float>(reduce.partial_parts(k).begin + 1);
        for (std::int64_t i = 0; i < kCount; ++i) {
          reduce.partial(k)[i] = std::sin(part * static_cast<float>(i + step));
        }
      }
      reduce.run(ctx, present, out.data());
      reduce.keep_residuals();
      if (comm.rank() == 0) {
        all.insert(all.end(), out.begin(), out.end());
      }
    }
  });
  return all;
}

TEST(CodedReduceBits, AreThoseOfAnyNumberOfThreads) {
  for (const Hosts& hosts : {Hosts{0, 0, 0}, Hosts{0, 0, 1}}) {
    for (const std::int64_t group : {7, 128, 5000}) {
      const std::vector<float> expected = sums_with(hosts, 1, group);
      for (const int threads : {2, 5}) {
        EXPECT_EQ(sums_with(hosts, threads, group), expected) << threads << " threads";
      }
    }
  }
}

/// One number of a group is far larger than the others, which are below half of its step.
double sum_of_small(const Hosts& hosts, bool feedback, int steps) {
  constexpr std::int64_t kCount = 96;
  double sum = 0.0;
  run_on(hosts, [&](Communicator& comm) {
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    OrderedAllReduce reduce(
        comm, *device, 8, kCount,
        {.codec = {.format = CodecFormat::kInt8, .group = 4}, .error_feedback = feedback});
    const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
    std::vector<float> out(kCount);
    double own = 0.0;
    for (int step = 0; step < steps; ++step) {
      for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
        for (std::int64_t i = 0; i < kCount; ++i) {
          const auto parts = static_cast<float>(reduce.partial_parts(k).size());
          reduce.partial(k)[i] = parts * (i % 4 == 0 ? 127.0F : 0.2F);
        }
      }
      reduce.run(ctx, present, out.data());
      reduce.keep_residuals();
      own += static_cast<double>(out[kCount - 1]);
    }
    if (comm.rank() == 0) {
      sum = own;
    }
  });
  return sum;
}

TEST(CodedReduceFeedback, CarriesGradientsBelowHalfAStep) {
  constexpr int kSteps = 50;
  for (const Hosts& hosts : {Hosts{0, 0}, Hosts{0, 0, 0, 0}, Hosts{0, 0, 1, 1}}) {
    EXPECT_EQ(sum_of_small(hosts, false, kSteps), 0.0);
    // 8 parts of 0.2 in each step; a step of the code is 8.
    EXPECT_NEAR(sum_of_small(hosts, true, kSteps), kSteps * 8 * 0.2, 8.1);
  }
}

TEST(CodedReduceClips, AreCountedAndNothingIsHidden) {
  constexpr std::int64_t kCount = 64;
  for (const Hosts& hosts : {Hosts{0, 0, 0}, Hosts{0, 0, 1}}) {
    run_on(hosts, [&](Communicator& comm) {
      const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
      Context ctx{.device = device.get(), .pool = &device->pool()};
      for (int format = 1; format < kNumCodecFormats; ++format) {
        OrderedAllReduce reduce(comm, *device, 8, kCount,
                                {.codec = {.format = static_cast<CodecFormat>(format), .group = 8},
                                 .error_feedback = true});
        const auto partials = static_cast<std::size_t>(reduce.num_partials());
        const std::vector<std::uint8_t> present(partials, 1);
        const auto run = [&](float last) {
          std::fill_n(reduce.partial(0), kCount * reduce.num_partials(), 1.0F);
          if (comm.rank() == 0) {
            reduce.partial(0)[kCount - 1] = last;
          }
          std::vector<float> out(kCount);
          reduce.run(ctx, present, out.data());
          return out;
        };
        const std::string name(to_string(static_cast<CodecFormat>(format)));
        const std::vector<float> clean = run(1.0F);
        EXPECT_EQ(reduce.clips(), kernels::CodecClips{}) << name;
        for (const float bad :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
          EXPECT_FALSE(std::isfinite(run(bad).back())) << name << ", rank " << comm.rank();
        }
        // Rank 0 encodes it, or the owner of the last slice what it is a term of.
        std::int64_t lost = reduce.clips().non_finite;
        comm.all_reduce(ctx, &lost, 1);
        EXPECT_GE(lost, 2) << name;
        EXPECT_EQ(run(1.0F), clean) << name << ": runs that are not kept leave nothing";
      }
      OrderedAllReduce reduce(comm, *device, 8, kCount,
                              {.codec = {.format = CodecFormat::kFp16}, .error_feedback = false});
      std::fill_n(reduce.partial(0), kCount * reduce.num_partials(), 60000.0F);
      reduce.run(ctx,
                 std::vector<std::uint8_t>(static_cast<std::size_t>(reduce.num_partials()), 1));
      EXPECT_EQ(reduce.partial(0)[5], 65504.0F);
      EXPECT_GT(reduce.clips().clipped, 0);
    });
  }
}

/// A sum with a codec and error feedback, again and again.
class CodedSum {
 public:
  explicit CodedSum(Communicator& comm)
      : reduce_(comm,
                *device_,
                8,
                500,
                {.codec = {.format = CodecFormat::kInt8}, .error_feedback = true}) {}

  void operator()() {
    Context ctx{.device = device_.get(), .pool = &device_->pool()};
    std::fill_n(reduce_.partial(0), 500 * reduce_.num_partials(), 1.0F);
    std::vector<float> out(500);
    const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce_.num_partials()), 1);
    reduce_.run(ctx, present, out.data());
    reduce_.keep_residuals();
  }

 private:
  std::unique_ptr<Device> device_ = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  OrderedAllReduce reduce_;
};

TEST(CodedReduceErrors, ARankLostInAnyStageEndsAllWithTheCause) {
  const auto make_sum = [](Communicator& comm) { return CodedSum(comm); };
  for (const Hosts& hosts : {Hosts{0, 0, 0}, Hosts{0, 0, 1, 1, 1}}) {
    const int stages = hosts.size() == 3 ? 2 : 4;
    for (int after = 0; after < stages; ++after) {
      for (const int lost : {0, 1, static_cast<int>(hosts.size()) - 1}) {
        for (const std::string& error : errors_when_lost(hosts, lost, after, make_sum)) {
          EXPECT_EQ(error, "the disk is gone") << "rank " << lost << " before exchange " << after;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::comm
