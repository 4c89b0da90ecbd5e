/// Private to sharding/: the asking side of the exchange of ids. A batch is checked, counted and
/// cut into slots; how a feature's ids are cut is its path's (paths/slot_path.h).
///
/// Cost        one pass over the ids to check them, in which their path reads them too; a second
/// one
///             over the features whose path asks for it; per id that is sent 12 to 24 bytes moved;
///             among many ranks its bytes on the wire once more (id_lanes.h).
/// Threads     runs of bags as tasks of a pool; const, so that batches share one.
#pragma once

#include "weft/base/thread_pool.h"
#include "weft/sharding/asked_ids.h"
#include "weft/sharding/paths/paths.h"

namespace weft::sharding {

class IdPacker {
 public:
  /// `paths` outlives it.
  explicit IdPacker(const Paths& paths);

  /// Fills `asked`. Throws Error(kData) naming feature, sample and table for an id outside its
  /// table. The batch stays as it is until the end of its step.
  void pack(ThreadPool& pool, const BatchView& batch, AskedIds& asked) const;

 private:
  void cut_tasks(AskedIds& asked) const;
  void check_ids(const AskedIds& asked, const BagTask& task) const;
  void describe_lanes(ThreadPool& pool, AskedIds& asked) const;

  const Paths& paths_;
  const Routing& routing_;
  bool weighted_ = false;  // some feature is
};

}  // namespace weft::sharding
