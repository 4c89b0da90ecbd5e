/// Numbers of vectors, gradients, dense sums and syncs that codecs could not say
/// (weft/kernels/codec.h, "Limits"), as they are summed up and warned of.
#pragma once

#include <string_view>

#include "weft/spec/config.h"
#include "weft/train/control.h"
#include "weft/train/engine.h"
#include "weft/train/summary.h"

namespace weft::train {

/// Fills in those since the start of the run, of all ranks. Returns their sum. Collective.
CodecReport sum_losses(Engine& engine, const spec::Config& config, Summary& summary);

/// Logs what has been lost since `before`, if anything; `when` it was.
void warn_of_losses(const spec::Config& config,
                    const CodecReport& now,
                    const CodecReport& before,
                    std::string_view when);

}  // namespace weft::train
