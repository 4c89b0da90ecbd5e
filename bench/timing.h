/// Wall-clock measurements of short pieces of work: those of calibration.
#pragma once

#include "weft/train/timing.h"

namespace weft::bench {

using train::median;
using train::median_pass_s;
using train::seconds_since;

}  // namespace weft::bench
