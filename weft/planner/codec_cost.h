/// Private to planner/: what the configured codecs make of vectors, of `cols` columns each: bytes
/// on the wire, and seconds of a rank (weft/cost/codec.h). fp32 takes no seconds.
#pragma once

#include <cstdint>

#include "weft/base/codec_format.h"
#include "weft/planner/step_shape.h"

namespace weft::planner {

/// Bytes of a vector on the wire.
double encoded_width(const StepShape& shape, CodecFormat format, std::int64_t cols);

double encode_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors);
double decode_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors);

/// Encoded and decoded in place: what a rank has for itself.
double round_s(const StepShape& shape, CodecFormat format, std::int64_t cols, double vectors);

}  // namespace weft::planner
