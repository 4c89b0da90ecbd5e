// Versions of rows in a storage::RowCache, for the oracle: a row's weight is its number and its
// state the step that updated it last, so that a state that stays behind is a wrong version.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/pipeline/slow_store.h"
#include "tests/storage/row_cache_backing.h"
#include "weft/storage/row_cache.h"
#include "weft/tensor/device.h"

namespace weft::pipeline {

/// Rows, slots, delays and the seed are those of the options; rules are not broken.
class CachedVersions final : public VersionStore {
 public:
  /// `device` is a CPU, and outlives it.
  CachedVersions(Device& device, const SlowStoreOptions& options);

  std::unique_ptr<storage::ResidentRows> make_batch() override { return cache_->make_batch(); }

  void drain() override { cache_->drain(); }

  [[nodiscard]] Versioned read(std::int64_t slot) override;
  void write(std::int64_t slot, const Versioned& value) override;
  [[nodiscard]] std::vector<std::int64_t> below() override;
  [[nodiscard]] SlowStoreCounts counts() override;

 private:
  SlowStoreOptions options_;
  std::unique_ptr<storage::test::LateBacking> backing_;
  std::unique_ptr<storage::RowCache> cache_;
};

}  // namespace weft::pipeline
