#include "weft/planner/codec_cost.h"

#include "weft/cost/codec.h"

namespace weft::planner {

double encoded_width(const StepShape& shape, CodecFormat format, std::int64_t cols) {
  return static_cast<double>(encoded_bytes(format, shape.config.codecs.group_size, cols));
}

double encode_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors) {
  return cost::encode_s(shape.cluster, {format, shape.config.codecs.group_size, cols, vectors,
                                        shape.config.codecs.rounding});
}

double decode_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors) {
  return cost::decode_s(shape.cluster, {format, shape.config.codecs.group_size, cols, vectors});
}

double round_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors) {
  return encode_s(shape, format, cols, vectors) + decode_s(shape, format, cols, vectors);
}

}  // namespace weft::planner
