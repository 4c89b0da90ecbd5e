/// Private to planner/: small changes of a plan, kept where the predicted step gets shorter.
///
///   turn    where rows are cut: bags are added at the samples or at the owners, rows by frequency
///           are dealt out one by one or cut in ranges. Nothing is placed anew. All tables at once,
///           by what they save on the wire, then ever fewer of them. So are hot rows, where the
///           statistics list some: of each table as many as save most, then where bags are added
///           once more
///   change  tables of the hottest rank are replicated, spread over all ranks, over those of a
///           host, or cut into a grid, one at a time; the rest is placed anew
#pragma once

#include "weft/planner/proposer.h"

namespace weft::planner {

/// a is to be taken rather than b where it alone fits, or its step is shorter.
bool better(const Proposal& a, const Proposal& b);

/// Whether `best`, made in the sketch given, has become shorter; it keeps its name. Which changes
/// are tried depends on sizes alone.
bool refine(Proposer& proposer, Proposal& best, PlanSketch sketch);

}  // namespace weft::planner
