// Hit rates of the cache's policies on recorded ids, through the operations that a training runs,
// beside the best that any choice of victims could do.
//
// Batches come as in a training that looks ahead: the next one takes its slots while the one before
// holds its own. A hit is a distinct row of a batch that has a slot; rates are those of the second
// half of a sequence. The optimum evicts the row whose next batch is farthest, knows all of them,
// and has neither sets nor pins (Belady, "A study of replacement algorithms for a virtual-storage
// computer", IBM Systems Journal 1966): no cache of as many slots does better.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/data/zipf.h"
#include "weft/kernels/cache_slots.h"
#include "weft/layout/tiers.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  std::string data;
  std::int64_t rows = 1'000'000;
  std::int64_t batch = 4096;
  std::int64_t batches = 400;
  std::uint32_t half_life = kernels::CacheTime{}.half_life;
};

/// The distinct rows of each batch, ascending.
using Batches = std::vector<std::vector<std::int64_t>>;

struct Recorded {
  std::string name;
  std::int64_t rows = 0;
  Batches batches;
};

void add_batch(Batches& batches, std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  batches.push_back(std::move(ids));
}

Recorded zipf(const Options& options, double exponent) {
  const data::ZipfSampler sampler(options.rows, exponent);
  const data::Scatter scatter(static_cast<std::uint64_t>(options.rows), 1);
  data::WordStream words(5);
  Recorded recorded{fmt::format("zipf {}", exponent), options.rows, {}};
  for (std::int64_t b = 0; b < options.batches; ++b) {
    std::vector<std::int64_t> ids(at(options.batch));
    for (std::int64_t& id : ids) {
      id = static_cast<std::int64_t>(scatter(sampler(words)));
    }
    add_batch(recorded.batches, std::move(ids));
  }
  return recorded;
}

/// Users who look at what they have looked at before, and now and then at something else; each goes
/// after some time, and another one comes.
Recorded sessions(const Options& options) {
  const data::ZipfSampler sampler(options.rows, 0.8);
  const data::Scatter scatter(static_cast<std::uint64_t>(options.rows), 2);
  data::WordStream words(6);
  constexpr std::size_t kSeen = 8;
  std::vector<std::vector<std::int64_t>> users(at(4 * options.batch));
  Recorded recorded{"sessions", options.rows, {}};
  for (std::int64_t b = 0; b < options.batches; ++b) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < options.batch; ++i) {
      std::vector<std::int64_t>& seen = users[words.next() % users.size()];
      if (words.next() % 20 == 0) {
        seen.clear();
      }
      if (seen.size() < 2 || words.next() % 10 < 4) {
        seen.push_back(static_cast<std::int64_t>(scatter(sampler(words))));
        if (seen.size() > kSeen) {
          seen.erase(seen.begin());
        }
        ids.push_back(seen.back());
      } else {
        ids.push_back(seen[words.next() % seen.size()]);
      }
    }
    add_batch(recorded.batches, std::move(ids));
  }
  return recorded;
}

/// Films, in the order of their ratings; no batches where the file is not there.
Recorded films(const Options& options) {
  Recorded recorded{"MovieLens films", 0, {}};
  std::ifstream file(options.data + "/ml-latest-small/ratings.csv");
  std::vector<std::pair<std::int64_t, std::int64_t>> ratings;  // time, film
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    long long user = 0;
    long long film = 0;
    double rating = 0.0;
    long long time = 0;
    if (std::sscanf(line.c_str(), "%lld,%lld,%lf,%lld", &user, &film, &rating, &time) == 4) {
      ratings.emplace_back(time, film);
    }
  }
  std::sort(ratings.begin(), ratings.end());
  std::unordered_map<std::int64_t, std::int64_t> numbers;
  constexpr std::size_t kBatch = 256;
  for (std::size_t begin = 0; begin + kBatch <= ratings.size(); begin += kBatch) {
    std::vector<std::int64_t> ids;
    for (std::size_t i = begin; i < begin + kBatch; ++i) {
      ids.push_back(numbers.try_emplace(ratings[i].second, std::ssize(numbers)).first->second);
    }
    add_batch(recorded.batches, std::move(ids));
  }
  recorded.rows = std::ssize(numbers);
  return recorded;
}

/// Counts from the second half of the batches on.
class HitRate {
 public:
  explicit HitRate(const Batches& batches) : from_(batches.size() / 2) {}

  void add(std::size_t batch, std::int64_t asked, std::int64_t hits) {
    if (batch >= from_) {
      asked_ += asked;
      hits_ += hits;
    }
  }

  [[nodiscard]] double value() const {
    return asked_ == 0 ? 0.0 : static_cast<double>(hits_) / static_cast<double>(asked_);
  }

 private:
  std::size_t from_;
  std::int64_t asked_ = 0;
  std::int64_t hits_ = 0;
};

/// The best rate of `slots` slots.
double optimum(const Batches& batches, std::int64_t slots) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<std::vector<std::int64_t>> next(batches.size());  // batch of each row's next use
  std::unordered_map<std::int64_t, std::int64_t> following;
  for (std::size_t b = batches.size(); b-- > 0;) {
    for (const std::int64_t row : batches[b]) {
      const auto found = following.find(row);
      next[b].push_back(found == following.end() ? kNever : found->second);
      following[row] = static_cast<std::int64_t>(b);
    }
  }
  HitRate rate(batches);
  std::unordered_map<std::int64_t, std::int64_t> held;  // row: its next use
  std::priority_queue<std::pair<std::int64_t, std::int64_t>> farthest;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    std::int64_t hits = 0;
    for (std::size_t i = 0; i < batches[b].size(); ++i) {
      const std::int64_t row = batches[b][i];
      if (held.contains(row)) {
        ++hits;
      } else if (std::ssize(held) == slots) {
        while (true) {
          const auto [use, victim] = farthest.top();
          farthest.pop();
          if (const auto found = held.find(victim); found != held.end() && found->second == use) {
            held.erase(found);
            break;
          }
        }
      }
      held[row] = next[b][i];
      farthest.emplace(next[b][i], row);
    }
    rate.add(b, std::ssize(batches[b]), hits);
  }
  return rate.value();
}

struct Variant {
  kernels::CachePolicy policy = kernels::CachePolicy::kLru;
  std::int64_t ways = 8;
  std::size_t known = 0;  ///< batches beyond the next whose rows are known
};

/// A cache without rows, in host memory.
class Replay {
 public:
  Replay(const Batches& batches,
         std::int64_t slots,
         const Variant& variant,
         std::uint32_t half_life)
      : batches_(batches),
        half_life_(half_life),
        variant_(variant),
        shape_(layout::cache_shape(slots, variant.ways, 1.0 / 32.0)),
        rows_(at(slots) + 8),
        marks_(at(slots)),
        heads_(at(shape_.sets)),
        nexts_(at(slots)),
        free_(shape_.slots()) {
    const kernels::CacheClear job{cache()};
    kernels::clear_cache(ctx_, std::span(&job, 1));
  }

  double run() {
    HitRate rate(batches_);
    std::vector<std::int64_t> before;  // slots of the batch that is being trained
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      std::vector<std::int64_t> slots(batches_[b].size());
      const std::int64_t early = take(b, slots, kernels::CacheRows::kAll);
      place(b, slots);
      mark_known(b);
      release(before);
      // What has found no slot beside the batch before.
      const std::int64_t late = take(b, slots, kernels::CacheRows::kLacking);
      place(b, slots);
      rate.add(b, std::ssize(slots), early + late);
      before = std::move(slots);
    }
    return rate.value();
  }

 private:
  kernels::CacheSlots cache() {
    auto address = reinterpret_cast<std::uintptr_t>(rows_.data());
    address = (address + 63) / 64 * 64;
    return {shape_.sets,   shape_.ways,   shape_.spill, reinterpret_cast<std::int64_t*>(address),
            marks_.data(), heads_.data(), nexts_.data()};
  }

  [[nodiscard]] kernels::CacheTime time(std::size_t batch) const {
    return {.policy = variant_.policy,
            .now = static_cast<std::uint32_t>(batch + 1),
            .half_life = half_life_};
  }

  std::int64_t take(std::size_t b, std::vector<std::int64_t>& slots, kernels::CacheRows which) {
    kernels::CacheTaken taken;
    const kernels::CacheTake job{.cache = cache(),
                                 .time = time(b),
                                 .which = which,
                                 .count = std::ssize(slots),
                                 .rows = batches_[b].data(),
                                 .slots = slots.data(),
                                 .room = free_,
                                 .taken = &taken};
    kernels::take_cached_rows(ctx_, std::span(&job, 1));
    free_ -= taken.fresh;
    return taken.found;
  }

  void place(std::size_t b, std::vector<std::int64_t>& slots) {
    kernels::CachePlaced placed;
    std::vector<std::int64_t> lists(4 * slots.size());
    const kernels::CachePlace job{.cache = cache(),
                                  .time = time(b),
                                  .count = std::ssize(slots),
                                  .rows = batches_[b].data(),
                                  .slots = slots.data(),
                                  .room = free_,
                                  .hands = &hands_,
                                  .placed_rows = lists.data(),
                                  .placed_slots = lists.data() + slots.size(),
                                  .leaving_rows = lists.data() + 2 * slots.size(),
                                  .leaving_slots = lists.data() + 3 * slots.size(),
                                  .result = &placed};
    kernels::place_rows(ctx_, std::span(&job, 1));
    free_ -= placed.placed;
  }

  /// Rows that lie in slots, of batches beyond the one that has been fetched.
  void mark_known(std::size_t b) {
    for (std::size_t k = b + 1; k <= b + variant_.known && k < batches_.size(); ++k) {
      std::vector<std::int64_t> slots(batches_[k].size());
      const kernels::CacheProbe probe{.cache = cache(),
                                      .count = std::ssize(slots),
                                      .rows = batches_[k].data(),
                                      .slots = slots.data()};
      kernels::probe_cache(ctx_, std::span(&probe, 1));
      const kernels::CacheMark mark{.cache = cache(),
                                    .count = std::ssize(slots),
                                    .slots = slots.data(),
                                    .set = kernels::SlotFlag::kWanted};
      kernels::mark_slots(ctx_, std::span(&mark, 1));
    }
  }

  void release(const std::vector<std::int64_t>& slots) {
    std::int64_t freed = 0;
    const kernels::CacheMark job{.cache = cache(),
                                 .count = std::ssize(slots),
                                 .slots = slots.data(),
                                 .clear = kernels::SlotFlag::kLoading,
                                 .pins = kernels::CachePins::kGiveUp,
                                 .freed = &freed};
    kernels::mark_slots(ctx_, std::span(&job, 1));
    free_ += freed;
  }

  const Batches& batches_;
  std::uint32_t half_life_;
  Variant variant_;
  layout::CacheShape shape_;
  Context ctx_;
  std::vector<std::int64_t> rows_;
  std::vector<kernels::SlotMark> marks_;
  std::vector<std::int32_t> heads_, nexts_;
  kernels::CacheHands hands_;
  std::int64_t free_;
};

struct Column {
  const char* name;
  Variant variant;
};

const std::vector<Column> kColumns = {
    {"lru, 8 ways", {kernels::CachePolicy::kLru, 8, 0}},
    {"lru, 32", {kernels::CachePolicy::kLru, 32, 0}},
    {"lfu, 8", {kernels::CachePolicy::kLfu, 8, 0}},
    {"lfu, 32", {kernels::CachePolicy::kLfu, 32, 0}},
    {"coming, 32", {kernels::CachePolicy::kComing, 32, 0}},
    {"4 more known, 32", {kernels::CachePolicy::kComing, 32, 4}},
};

void run(const Options& options) {
  std::vector<Recorded> all;
  for (const double exponent : {0.8, 1.05, 1.2}) {
    all.push_back(zipf(options, exponent));
  }
  all.push_back(sessions(options));
  all.push_back(films(options));
  fmt::print("| ids | slots, of all rows |");
  for (const Column& column : kColumns) {
    fmt::print(" {} |", column.name);
  }
  fmt::print(" optimum |\n| --- | ---: |");
  for (std::size_t i = 0; i <= kColumns.size(); ++i) {
    fmt::print(" ---: |");
  }
  fmt::print("\n");
  std::vector<Figure> figures;
  for (const Recorded& recorded : all) {
    std::int64_t largest = 0;
    for (const auto& batch : recorded.batches) {
      largest = std::max(largest, std::ssize(batch));
    }
    for (const double share : {0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
      const auto slots = static_cast<std::int64_t>(share * static_cast<double>(recorded.rows));
      if (slots < largest || recorded.batches.empty()) {
        continue;
      }
      fmt::print("| {} | {:.1f} % |", recorded.name, 100 * share);
      const auto add = [&](const char* name, double rate) {
        fmt::print(" {:.1f} |", 100 * rate);
        std::fflush(stdout);
        figures.push_back({.name = name,
                           .parameters = {{"ids", recorded.name},
                                          {"slots", fmt::format("{:.1f} %", 100 * share)}},
                           .unit = "hits of rows",
                           .better = Better::kHigher,
                           .values = {rate},
                           .limit = {}});
      };
      for (const Column& column : kColumns) {
        add(column.name, Replay(recorded.batches, slots, column.variant, options.half_life).run());
      }
      add("optimum", optimum(recorded.batches, slots));
      fmt::print("\n");
    }
  }
  if (!options.out.empty()) {
    write_json(options.out, "cache_policy", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  const char* const data = std::getenv("WEFT_DATA");
  options.data = data == nullptr ? "../shared/data" : data;
  weft::bench::Arguments arguments("Replays ids through the cache's policies");
  arguments.add("--out", options.out, "Write the rates as JSON to FILE");
  arguments.add("--data", options.data, "Folder of recorded data");
  arguments.add("--rows", options.rows, "Rows of generated ids").positive();
  arguments.add("--batch", options.batch, "Ids of a batch").positive();
  arguments.add("--batches", options.batches, "Batches").positive();
  arguments.add("--half-life", options.half_life, "Of uses, in batches; lfu").positive();
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cache_policy_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
