/// Tells what keeps lists of touched rows of an update that a test has made.
#pragma once

#include "weft/embedding/row_gradients.h"

namespace weft::sharding {

/// `list` is a ReplicaAverage or TouchedRows of the shard of `gradients` alone.
template <typename List>
void note_updated(List& list, embedding::RowGradients gradients) {
  embedding::RowGradients* const one = &gradients;
  list.note_updated({&one, 1});
}

}  // namespace weft::sharding
