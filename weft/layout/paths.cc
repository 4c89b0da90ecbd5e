#include "weft/layout/paths.h"

namespace weft::layout {
namespace {

/// Whether ids of a bag may go to different cuts of rows; replicas have one.
bool is_cut(const spec::TablePlan& plan) {
  return plan.sharding != spec::Sharding::kDataParallel && !plan.shards.empty() &&
         (plan.shards.front().rows != plan.shards.back().rows || !plan.hot.empty());
}

}  // namespace

Path path_of(const spec::TablePlan& plan) {
  // A table whose rows are not cut is looked up as any other, whatever its plan says.
  if (is_cut(plan)) {
    return plan.pooled_at == spec::PooledAt::kSample ? Path::kUniqueRows : Path::kSplitBags;
  }
  return plan.sharding == spec::Sharding::kDataParallel ? Path::kInPlace : Path::kWholeBags;
}

}  // namespace weft::layout
