/// MovieLens, from the folder with ratings.csv and movies.csv. A click is a rating of 4 or more.
///
/// Order    by (timestamp, user, film); the first nine tenths are for training, the last tenth for
///          evaluation. All features of an event come from events of earlier seconds only, those
///          of the evaluation part too; events of the same second do not see each other.
/// Access   random; all is held in memory, some 60 bytes per rating.
#pragma once

#include <memory>
#include <string>

#include "weft/data/source.h"

namespace weft::data {

/// Throws Error(kData) for a missing file, a wrong header and any bad line.
std::unique_ptr<Source> open_movielens(const std::string& folder, Split split);

}  // namespace weft::data
