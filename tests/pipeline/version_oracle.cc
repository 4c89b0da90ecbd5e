#include "tests/pipeline/version_oracle.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "tests/pipeline/cached_versions.h"
#include "weft/base/at.h"
#include "weft/base/hash.h"

namespace weft::pipeline {
namespace {

/// The last of `steps`, ascending, before `step`; 0 where there is none.
std::int64_t last_before(const std::vector<std::int64_t>& steps, std::int64_t step) {
  const auto found = std::lower_bound(steps.begin(), steps.end(), step);
  return found == steps.begin() ? 0 : *(found - 1);
}

}  // namespace

VersionOracle::VersionOracle(const Schedule& schedule, const OracleOptions& options)
    : schedule_(schedule),
      options_(options),
      cuts_(schedule.cuts_batches ? options.cuts : 1),
      random_(options.seed),
      steps_of_(at(options.shards), std::vector<std::vector<std::int64_t>>(at(options.store.rows))),
      device_(make_device({.threads = 1})),
      lineup_(2, cuts_) {
  for (std::int64_t s = 0; s < options.shards; ++s) {
    SlowStoreOptions store = options.store;
    store.seed = random_();
    if (options.stores == Stores::kSlow) {
      stores_.push_back(std::make_unique<SlowStore>(store));
    } else {
      stores_.push_back(std::make_unique<CachedVersions>(*device_, store));
    }
  }
  for (const LeftOut& access : options.left_out) {
    lineup_.leave_out(access);
  }
  for (Batch& batch : batches_) {
    batch.shards.resize(stores_.size());
    for (std::size_t s = 0; s < stores_.size(); ++s) {
      batch.shards[s].resident = stores_[s]->make_batch();
    }
    batch.bodies.resize(at(cuts_));
    for (std::int64_t cut = 0; cut < cuts_; ++cut) {
      for (std::size_t part = 0; part < kStepParts; ++part) {
        batch.bodies[at(cut)][part] = [this, &batch, part, cut](Context& ctx) {
          run_stage(ctx, batch, static_cast<StepPart>(part), cut);
        };
      }
    }
  }
  for (std::size_t i = 0; i < kStreamRoles; ++i) {
    streams_.push_back(device_->make_stream({.name = fmt::format("stream {}", i)}));
  }
}

VersionOracle::~VersionOracle() {
  streams_.clear();  // before what their stages use
}

void VersionOracle::run(std::int64_t steps) {
  std::int64_t begun = kNoBatch;
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (begun == kNoBatch) {
      begun = 0;
      begin(begun, step, Pass::kTraining);
      schedule_.begin(*this, begun);
    }
    const std::int64_t now = begun;
    begun = kNoBatch;
    if (schedule_.looks_ahead && step < steps) {
      begun = 1 - now;
      begin(begun, step + 1, Pass::kTraining);
    }
    schedule_.step(*this, now, begun);
    finish(now);
    if (options_.eval_rows > 0 && random_() % 5 == 0) {
      const std::int64_t place = begun == 0 ? 1 : 0;
      begin(place, step + 1, Pass::kEvaluation);
      evaluation(*this, place);
      finish(place);
    }
  }
}

void VersionOracle::begin(std::int64_t place, std::int64_t step, Pass pass) {
  Batch& batch = batches_[at(place)];
  batch.step = step;
  batch.is_applied = pass == Pass::kTraining && random_() % 10 != 0;
  batch.averages = random_() % 4 == 0;
  draw_batch(batch, step, pass);
  if (!batch.is_applied) {
    return;
  }
  for (std::size_t s = 0; s < batch.shards.size(); ++s) {
    for (const std::int64_t row : batch.shards[s].rows) {
      steps_of_[s][at(row)].push_back(step);
    }
  }
}

void VersionOracle::draw_batch(Batch& batch, std::int64_t step, Pass pass) {
  for (std::size_t s = 0; s < batch.shards.size(); ++s) {
    ShardBatch& shard = batch.shards[s];
    const std::int64_t kind =
        options_.has_rare_batches ? static_cast<std::int64_t>(random_() % 10) : 9;
    if (pass == Pass::kEvaluation) {
      draw_rows(shard, options_.eval_rows, 0);
    } else if (kind == 0) {
      draw_rows(shard, 0, 0);
    } else {
      draw_rows(shard, kind == 1 ? 1 : options_.most_rows, kind == 1 ? 1 : options_.least_rows);
    }
    shard.expected.clear();
    for (const std::int64_t row : shard.rows) {
      shard.expected.push_back(last_before(steps_of_[s][at(row)], step));
    }
  }
}

/// At most `size` distinct rows, few of them very often; row 0 in every batch that has any.
void VersionOracle::draw_rows(ShardBatch& shard, std::int64_t size, std::int64_t least) {
  shard.ids.clear();
  shard.rows.clear();
  if (size > 0) {
    shard.rows.push_back(0);
  }
  const auto has = [&shard](std::int64_t row) {
    return std::find(shard.rows.begin(), shard.rows.end(), row) != shard.rows.end();
  };
  const auto drawn = std::max(size - 1, std::int64_t{0});
  const bool fills = least >= size;
  for (std::int64_t i = 0; i < drawn || (fills && std::ssize(shard.rows) < size); ++i) {
    const double place = std::uniform_real_distribution<double>(0, 1)(random_);
    const auto row =
        static_cast<std::int64_t>(place * place * static_cast<double>(options_.store.rows));
    if (!has(row) && std::ssize(shard.rows) < size) {
      shard.rows.push_back(row);
    }
  }
  std::sort(shard.rows.begin(), shard.rows.end());
  for (const std::int64_t row : shard.rows) {
    shard.ids.insert(shard.ids.end(), 1 + random_() % 2, row);
  }
  const auto ids = static_cast<std::int64_t>(shard.ids.size());
  shard.offsets = {0, ids / 2, ids};
  shard.bags = {
      .ids = shard.ids.data(), .offsets = shard.offsets.data(), .weights = nullptr, .bags = 2};
}

void VersionOracle::finish(std::int64_t place) {
  lineup_.wait_for_batch(place);
  for (ShardBatch& shard : batches_[at(place)].shards) {
    shard.resident->release(storage::Release::kUnchanged);
  }
}

bool VersionOracle::averages_behind(std::int64_t batch) const {
  return batches_[at(batch)].averages;
}

void VersionOracle::issue(const StageOf& stage, StreamRole on) {
  const std::size_t stream = options_.streams == Streams::kAny
                                 ? static_cast<std::size_t>(random_() % kStreamRoles)
                                 : static_cast<std::size_t>(on);
  Batch& batch = batches_[at(stage.batch)];
  lineup_.add(*streams_[stream], batch.bodies[at(stage.cut)][static_cast<std::size_t>(stage.part)],
              stage);
}

void VersionOracle::run_stage(Context& ctx, Batch& batch, StepPart part, std::int64_t cut) {
  if (part == StepPart::kSyncReplicas) {
    return;  // may outlast its batch
  }
  delay(batch, part);
  switch (part) {
    case StepPart::kFetch:
      for (ShardBatch& shard : batch.shards) {
        shard.resident->fetch(ctx, std::span(&shard.bags, 1));
      }
      break;
    case StepPart::kLookup:
      lookup(ctx, batch, cut);
      break;
    case StepPart::kUpdateRows:
      update(ctx, batch);
      break;
    default:
      break;
  }
}

void VersionOracle::delay(Batch& batch, StepPart part) const {
  const std::uint64_t draw = hash_combine(
      options_.seed,
      mix64(static_cast<std::uint64_t>(batch.step) << 20 | batch.stages_begun.fetch_add(1)));
  if (part == options_.slow) {
    std::this_thread::sleep_for(std::chrono::microseconds(
        (draw >> 8) % static_cast<std::uint64_t>(options_.slow_delay.count() + 1)));
  } else if (draw % 4 == 0 && options_.stage_delay.count() > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(
        (draw >> 8) % static_cast<std::uint64_t>(options_.stage_delay.count())));
  }
}

/// Every micro-batch reads some of the rows, and all the first.
void VersionOracle::lookup(Context& ctx, Batch& batch, std::int64_t cut) {
  for (ShardBatch& shard : batch.shards) {
    shard.resident->begin_fetch_late(ctx);
  }
  for (std::size_t s = 0; s < batch.shards.size(); ++s) {
    ShardBatch& shard = batch.shards[s];
    shard.resident->fetch_late(ctx);
    const std::span slots = shard.resident->resolve(ctx, shard.rows);
    for (std::size_t i = 0; i < shard.rows.size(); ++i) {
      if (i != 0 && static_cast<std::int64_t>(i) % cuts_ != cut) {
        continue;
      }
      const Versioned seen = stores_[s]->read(slots[i]);
      if (seen == Versioned{shard.rows[i], shard.expected[i]}) {
        ++right_;
      } else if (seen.row < 0) {
        ++absent_;
      } else if (seen.row == shard.rows[i] && seen.version < shard.expected[i]) {
        ++old_;
      } else {
        ++other_;
      }
    }
  }
}

void VersionOracle::update(Context& ctx, Batch& batch) {
  for (std::size_t s = 0; s < batch.shards.size(); ++s) {
    ShardBatch& shard = batch.shards[s];
    if (!batch.is_applied) {
      shard.resident->release(storage::Release::kUnchanged);
      continue;
    }
    const std::span slots = shard.resident->resolve(ctx, shard.rows);
    for (std::size_t i = 0; i < shard.rows.size(); ++i) {
      stores_[s]->write(slots[i], {shard.rows[i], batch.step});
    }
    shard.resident->release(storage::Release::kUpdated);
  }
}

Reads VersionOracle::reads() const {
  return {.right = right_, .old = old_, .other = other_, .absent = absent_};
}

SlowStoreCounts VersionOracle::counts() {
  SlowStoreCounts all;
  for (const auto& store : stores_) {
    all += store->counts();
  }
  return all;
}

std::int64_t VersionOracle::wrong_below() {
  std::int64_t wrong = 0;
  for (std::size_t s = 0; s < stores_.size(); ++s) {
    stores_[s]->drain();
    const std::vector<std::int64_t> below = stores_[s]->below();
    for (std::size_t row = 0; row < below.size(); ++row) {
      const std::vector<std::int64_t>& steps = steps_of_[s][row];
      wrong += below[row] != (steps.empty() ? 0 : steps.back()) ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace weft::pipeline
