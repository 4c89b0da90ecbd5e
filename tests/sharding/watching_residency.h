// A Residency that moves nothing and writes down what batches ask of a shard, for tests of who
// asks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "weft/storage/residency.h"

namespace weft::sharding {

class WatchingResidency final : public storage::Residency {
 public:
  /// What one batch has asked for, from fetch() to release().
  struct Asked {
    std::set<std::int64_t> rows;
    std::int64_t late_calls = 0;
    storage::Release how = storage::Release::kUnchanged;
  };

  std::unique_ptr<storage::ResidentRows> make_batch() override {
    return std::make_unique<Batch>(*this);
  }

  void drain() override {}

  /// Batches that have been released, in that order.
  [[nodiscard]] std::vector<Asked> released() {
    const std::lock_guard lock(mutex_);
    return released_;
  }

  /// Batches that hold rows, and such that have been fetched again without a release between.
  [[nodiscard]] std::int64_t held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

  [[nodiscard]] std::int64_t most_held() {
    const std::lock_guard lock(mutex_);
    return most_held_;
  }

 private:
  class Batch final : public storage::ResidentRows {
   public:
    explicit Batch(WatchingResidency& to) : to_(to) {}

    ~Batch() override { release(storage::Release::kUnchanged); }

    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    void begin_fetch(Context& /*ctx*/, std::span<const kernels::Bags> rows) override {
      const std::lock_guard lock(to_.mutex_);
      asked_ = {};
      for (const kernels::Bags& bags : rows) {
        asked_.rows.insert(bags.ids + bags.offsets[0], bags.ids + bags.offsets[bags.bags]);
      }
      is_held_ = true;
      to_.most_held_ = std::max(to_.most_held_, ++to_.held_);
    }

    void fetch_late(Context& /*ctx*/) override {
      const std::lock_guard lock(to_.mutex_);
      ++asked_.late_calls;
    }

    void release(storage::Release how) override {
      const std::lock_guard lock(to_.mutex_);
      if (is_held_) {
        is_held_ = false;
        --to_.held_;
        asked_.how = how;
        to_.released_.push_back(asked_);
      }
    }

   private:
    WatchingResidency& to_;
    Asked asked_;
    bool is_held_ = false;
  };

  std::mutex mutex_;
  std::vector<Asked> released_;
  std::int64_t held_ = 0;
  std::int64_t most_held_ = 0;
};

}  // namespace weft::sharding
