/// Counts of values that an encoder clipped or found non-finite (weft/kernels/codec.h, "Limits"),
/// summed over ranks and warned of: of vectors, gradients, dense sums and syncs.
#pragma once

#include <string_view>

#include "weft/spec/config.h"
#include "weft/train/engine.h"
#include "weft/train/step_report.h"
#include "weft/train/summary.h"

namespace weft::train {

/// Fills in the summary's counts since the start of the run, over all ranks. Returns their sum over
/// tables. Collective.
CodecReport sum_clips(Engine& engine, const spec::Config& config, Summary& summary);

/// Logs a warning if the counts have grown since `before`; `when` says which steps these are.
void warn_of_clips(const spec::Config& config,
                   const CodecReport& now,
                   const CodecReport& before,
                   std::string_view when);

}  // namespace weft::train
