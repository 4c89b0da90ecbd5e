/// Private to tensor/: the streams of CPU devices.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/tensor/stream.h"

namespace weft {

/// Told by a CPU stream about each stage, on the thread that runs it.
class StageObserver {
 public:
  virtual ~StageObserver() = default;

  /// Before a stage: `stream` is the number given in CpuStreamOptions, `sequence` the stage's
  /// place.
  virtual void enter(std::uint64_t stream, std::uint64_t sequence) = 0;

  /// After the stage, whether it threw or not.
  virtual void leave() noexcept = 0;
};

struct CpuStreamOptions {
  StreamOptions stream;
  Context context;                    ///< handed to every stage
  StageObserver* observer = nullptr;  ///< outlives the stream
  std::uint64_t number = 0;           ///< of the stream on its device, in order of making
};

/// A stream with a thread of its own, or one that runs its stages inside enqueue().
std::unique_ptr<Stream> make_cpu_stream(const CpuStreamOptions& options);

}  // namespace weft
