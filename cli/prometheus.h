/// Figures of a running job as a page that Prometheus reads.
#pragma once

#include <string>

#include "weft/train/progress.h"

namespace weft::cli {

/// The text form of Prometheus (exposition format 0.0.4) of the newest figures; either may be null.
std::string to_prometheus(const train::WindowFigures* window, const train::EvalFigures* eval);

}  // namespace weft::cli
