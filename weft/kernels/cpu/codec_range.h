/// Private to kernels/cpu: codecs on the calling thread, for operations that work on chunks in the
/// cache.
#pragma once

#include "weft/base/parts.h"
#include "weft/kernels/codec.h"

namespace weft::kernels::cpu {

/// Encodes vectors [range) of a job, whose count is not looked at; returns what is lost and adds it
/// to nothing. Draws are those in `numbers`. Ranges may run at once.
CodecClips encode_range(const EncodeJob& job, Range range);

/// Decodes vectors [range).
void decode_range(const DecodeJob& job, Range range);

}  // namespace weft::kernels::cpu
