/// The next batch of a loader, however long its reader takes, as long as it reads.
#pragma once

#include "weft/comm/communicator.h"
#include "weft/data/batch.h"
#include "weft/data/loader.h"

namespace weft::train {

/// As loader.next(). A rank that skips to a resume position, or whose disk is slow, may need far
/// longer than the others: as long as its reader moves they wait for it (comm::WorkWatch). Where it
/// does not move for the timeout of `comm`, Error(kTimeout) that names the rank, the data and how
/// far it was is the world's error. Not collective: every rank waits for its own reader, and `comm`
/// may be in use.
bool next_batch(data::Loader& loader, comm::Communicator& comm, data::Batch& batch);

}  // namespace weft::train
