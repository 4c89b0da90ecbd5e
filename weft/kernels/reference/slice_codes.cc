#include "weft/kernels/slice_codes.h"

#include <vector>

#include "weft/base/at.h"

namespace weft::kernels::reference {

void encode_slices(Context& ctx, std::span<const SliceEncode> jobs) {
  for (const SliceEncode& job : jobs) {
    for (std::int64_t i = 0; job.residual != nullptr && i < job.count; ++i) {
      job.values[i] += job.residual[i];
    }
    const EncodeJob encoding{.codec = job.codec,
                             .vectors = job.values,
                             .stride = job.count,
                             .count = 1,
                             .cols = job.count,
                             .to = job.to,
                             .clips = job.clips};
    reference::encode(ctx, std::span(&encoding, 1));
    std::vector<float> decoded(at(job.count));
    const DecodeJob decoding{.codec = job.codec,
                             .from = job.to,
                             .vectors = decoded.data(),
                             .stride = job.count,
                             .count = 1,
                             .cols = job.count};
    reference::decode(ctx, std::span(&decoding, 1));
    for (std::int64_t i = 0; i < job.count; ++i) {
      if (job.residual != nullptr) {
        job.values[i] -= decoded[at(i)];
      }
      if (job.decoded != nullptr) {
        job.decoded[i] = decoded[at(i)];
      }
    }
  }
}

}  // namespace weft::kernels::reference
