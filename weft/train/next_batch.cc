#include "weft/train/next_batch.h"

#include <optional>

#include "weft/comm/work_watch.h"

namespace weft::train {

bool next_batch(data::Loader& loader, comm::Communicator& comm, data::Batch& batch) {
  using Next = data::Loader::Next;
  const auto interval = comm::WorkWatch::interval(comm);
  std::optional<comm::WorkWatch> watch;
  for (;;) {
    const Next next = loader.next_within(batch, interval);
    if (next != Next::kNotYet) {
      return next == Next::kBatch;
    }
    if (!watch) {
      watch.emplace(comm, loader.progress());
    }
    watch->look();
  }
}

}  // namespace weft::train
