#include "weft/train/agreement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/base/text.h"

namespace weft::train {
namespace {

struct Difference {
  std::string_view what;
  std::string_view advice;
};

constexpr std::array<Difference, 6> kCompared = {{
    {"version", "run one build of Weft on all ranks"},
    {"configuration", "start all ranks with the same file and the same --set"},
    {"resume", "start all ranks with the same --resume"},
    {"plan", "give all ranks the same plan"},
    {"data", "all ranks must see the same files, complete"},
    {"vocabularies", "resume from one checkpoint that all ranks see"},
}};

kernels::Target configured_target(spec::Target target) {
  switch (target) {
    case spec::Target::kAuto:
      return kernels::best_target();
    case spec::Target::kSse4:
      return kernels::Target::kSse4;
    case spec::Target::kAvx2:
      return kernels::Target::kAvx2;
    case spec::Target::kAvx512:
      return kernels::Target::kAvx512;
    case spec::Target::kAvx512Bf16:
      return kernels::Target::kAvx512Bf16;
    case spec::Target::kAmx:
      return kernels::Target::kAmx;
  }
  fail(ErrorCode::kInternal, "target {} has no name", static_cast<int>(target));
}

/// The first rank whose value most ranks have; rank 0 among equals.
std::size_t most_common(const std::vector<std::uint64_t>& values) {
  std::size_t best = 0;
  std::ptrdiff_t best_count = 0;
  for (std::size_t r = 0; r < values.size(); ++r) {
    const auto count = std::count(values.begin(), values.end(), values[r]);
    if (count > best_count) {
      best = r;
      best_count = count;
    }
  }
  return best;
}

using Record = std::array<std::uint64_t, kCompared.size()>;

/// Whether all ranks have the same record, found up the tree of ranks. Collective.
bool are_all_equal(comm::Communicator& world, Context& ctx, const Record& own) {
  struct Seen {
    Record record;
    std::uint64_t differ;  ///< 1: some of the ranks have another one
  };

  Seen seen{.record = own, .differ = 0};
  world.merge(ctx, std::as_writable_bytes(std::span(&seen, 1)),
              [](std::span<std::byte> block, std::span<const std::byte> later) {
                Seen some;
                Seen next;
                std::memcpy(&some, block.data(), sizeof some);
                std::memcpy(&next, later.data(), sizeof next);
                some.differ |= next.differ | std::uint64_t{some.record != next.record};
                std::memcpy(block.data(), &some, sizeof some);
              });
  return seen.differ == 0;
}

}  // namespace

std::string version() {
  return WEFT_VERSION;
}

void agree_on_job(comm::Communicator& world, Context& ctx, const JobIdentity& job) {
  const Record own = {hash_string(version()),
                      hash_string(job.config_yaml),
                      std::uint64_t{job.resumes},
                      hash_string(job.plan_yaml),
                      job.data,
                      hash_string(job.vocabularies)};
  if (are_all_equal(world, ctx, own)) {
    return;
  }
  std::vector<Record> records(static_cast<std::size_t>(world.size()));
  world.all_gather(ctx, own.data(), records.data(), sizeof(Record));
  for (std::size_t i = 0; i < kCompared.size(); ++i) {
    std::vector<std::uint64_t> values;
    for (const Record& record : records) {
      values.push_back(record[i]);
    }
    const std::size_t most = most_common(values);
    for (std::size_t r = 0; r < values.size(); ++r) {
      if (values[r] != values[most]) {
        throw Error(
            ErrorCode::kComm,
            fmt::format("before step 0: rank {} differs from rank {} in its {} ({:016x} "
                        "against {:016x}); {}",
                        r, most, kCompared[i].what, values[r], values[most], kCompared[i].advice),
            static_cast<int>(r));
      }
    }
  }
}

kernels::Target agree_on_target(comm::Communicator& world,
                                Context& ctx,
                                const spec::Config& config) {
  // The lowest, and the first rank that has it.
  std::int64_t lowest = static_cast<std::int64_t>(kernels::best_target()) << 32 | world.rank();
  world.all_reduce(ctx, &lowest, 1, comm::ReduceOp::kMin);
  kernels::Target target = static_cast<kernels::Target>(lowest >> 32);
  if (config.numerics.target != spec::Target::kAuto) {
    const kernels::Target wanted = configured_target(config.numerics.target);
    if (wanted > target) {
      fail(ErrorCode::kConfig,
           "numerics.target: {}: the machine of rank {} has only {}; set numerics.target: {} or "
           "auto",
           to_string(wanted), lowest & 0xffffffff, to_string(target), to_string(target));
    }
    target = wanted;
  }
  kernels::limit_target(target);
  if (world.rank() == 0) {
    log_info("instruction set agreed by {}: {}", counted(world.size(), "rank"), to_string(target));
    if (config.model.compute == spec::Compute::kBf16 && !kernels::has_bf16_products(target)) {
      log_info(
          "model.compute: bf16: {} has no products of bf16; they run as fp32 products of the same "
          "numbers, at the speed of fp32",
          to_string(target));
    }
  }
  return target;
}

}  // namespace weft::train
