#include "weft/storage/segment_store.h"

#include "weft/storage/store_core.h"

namespace weft::storage {

SegmentStore::SegmentStore(io::FileSystem& files, const SegmentStoreOptions& options)
    : core_(std::make_unique<StoreCore>(files, options)) {
}

SegmentStore::~SegmentStore() = default;

RowBacking& SegmentStore::add_shard(const StoreShard& shard) {
  return core_->add_shard(shard);
}

Seal SegmentStore::seal() {
  return core_->seal();
}

void SegmentStore::retire(const Seal& seal) {
  core_->retire(seal);
}

std::int64_t SegmentStore::most_files() const {
  return core_->most_files();
}

RowFiles& SegmentStore::files() {
  return *core_;
}

StoreCounts SegmentStore::counts() const {
  return core_->counts();
}

io::ReadMethod SegmentStore::read_method() const {
  return core_->reads().method();
}

}  // namespace weft::storage
