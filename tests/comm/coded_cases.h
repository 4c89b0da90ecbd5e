/// Checks of sums with a codec that hold for every backend and form: called on all ranks with the
/// same arguments.
#pragma once

#include <cstdint>

#include "weft/comm/communicator.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm::testing {

/// A codec's largest error, as a share of its group's largest magnitude.
double codec_error(CodecFormat format);

/// The sum of random partial sums: the same bits on all ranks, within the bound of two roundings
/// of the plain sum, and with one rank or fp32 the plain sum itself. Every format.
void check_coded_reduce(Communicator& world, std::int64_t parts, std::int64_t count);

/// With error feedback sums of many steps are as near as those of one, absent partial sums among
/// them; a run that is not kept changes nothing; and residuals that were saved and restored go on
/// with the same bits.
void check_feedback(Communicator& world, std::int64_t parts, std::int64_t count);

}  // namespace weft::comm::testing
