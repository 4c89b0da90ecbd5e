// for each 4096 floats, in whole groups:
//   values += residual;  their code;  what it decodes to;  values -= that
//
// Bound by memory and by the encoder: 12 bytes read and 4 written per float with a residual.
// Values, what was lost before and what was decoded stay in the first-level cache. A task is 65536
// floats.

#include "weft/kernels/slice_codes.h"

#include <algorithm>
#include <atomic>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/kernels/cpu/codec_range.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kSliceBlock = 4096;  // 16 KiB
constexpr std::int64_t kBlocksPerTask = 16;

/// Floats that are encoded at a time: whole groups.
std::int64_t block_floats(const Codec& codec) {
  const std::int64_t group = is_grouped(codec.format) ? codec.group : 1;
  return (kSliceBlock + group - 1) / group * group;
}

std::int64_t blocks_of(const Codec& codec, std::int64_t count) {
  const std::int64_t block = block_floats(codec);
  return (count + block - 1) / block;
}

CodecClips encode_block(const SliceEncode& job, std::int64_t block) {
  const std::int64_t whole = block_floats(job.codec);
  const Range range{block * whole, std::min(job.count, (block + 1) * whole)};
  const std::int64_t count = range.size();
  float* const values = job.values + range.begin;
  std::byte* const to = job.to + block * encoded_bytes(job.codec, whole);
  for (std::int64_t i = 0; job.residual != nullptr && i < count; ++i) {
    values[i] += job.residual[range.begin + i];
  }
  const CodecClips clips = cpu::encode_range(
      {.codec = job.codec, .vectors = values, .stride = count, .cols = count, .to = to}, {0, 1});
  if (job.decoded == nullptr && job.residual == nullptr) {
    return clips;
  }
  float* const decoded =
      job.decoded == nullptr ? ThreadScratch::get(whole) : job.decoded + range.begin;
  cpu::decode_range(
      {.codec = job.codec, .from = to, .vectors = decoded, .stride = count, .cols = count}, {0, 1});
  for (std::int64_t i = 0; job.residual != nullptr && i < count; ++i) {
    values[i] -= decoded[i];
  }
  return clips;
}

}  // namespace

void add_slice_decodes(const Codec& codec,
                       const std::byte* from,
                       std::int64_t count,
                       float* values,
                       std::vector<DecodeJob>& jobs) {
  const std::int64_t block = block_floats(codec);
  const std::int64_t whole = count / block;
  if (whole > 0) {
    jobs.push_back({.codec = codec,
                    .from = from,
                    .vectors = values,
                    .stride = block,
                    .count = whole,
                    .cols = block});
  }
  const std::int64_t rest = count - whole * block;
  if (rest > 0) {
    jobs.push_back({.codec = codec,
                    .from = from + whole * encoded_bytes(codec, block),
                    .vectors = values + whole * block,
                    .stride = rest,
                    .count = 1,
                    .cols = rest});
  }
}

void cpu::encode_slices(Context& ctx, std::span<const SliceEncode> jobs) {
  for (const SliceEncode& job : jobs) {
    WEFT_CHECK(job.codec.rounding == CodecRounding::kNearest, "slices are rounded to nearest");
  }
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        const std::int64_t blocks = blocks_of(jobs[at(i)].codec, jobs[at(i)].count);
        return (blocks + kBlocksPerTask - 1) / kBlocksPerTask;
      },
      [&](std::int64_t i, std::int64_t task) {
        const SliceEncode& job = jobs[at(i)];
        const std::int64_t blocks = blocks_of(job.codec, job.count);
        CodecClips clips;
        for (std::int64_t block = task * kBlocksPerTask;
             block < std::min(blocks, (task + 1) * kBlocksPerTask); ++block) {
          clips += encode_block(job, block);
        }
        if (job.clips != nullptr && clips != CodecClips{}) {
          std::atomic_ref(job.clips->non_finite)
              .fetch_add(clips.non_finite, std::memory_order_relaxed);
          std::atomic_ref(job.clips->clipped).fetch_add(clips.clipped, std::memory_order_relaxed);
        }
      });
}

}  // namespace weft::kernels
