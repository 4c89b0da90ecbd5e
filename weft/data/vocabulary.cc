#include "weft/data/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/data/source.h"

namespace weft::data {
namespace {

static_assert(std::endian::native == std::endian::little, "images are little-endian");

constexpr std::uint64_t kMagic = 0x434f56'54464557ULL;  // "WEFTVOC" and a zero byte
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kBlock = 16384;  ///< samples decoded at a time
constexpr std::uint64_t kMinSlots = 16;
constexpr std::size_t kFetchAhead = 16;  ///< ids; their places are on the way from memory meanwhile

const std::string& table_of(const spec::SparseFeature& feature) {
  return feature.table.empty() ? feature.name : feature.table;
}

const std::string& column_of(const spec::SparseFeature& feature) {
  return feature.column.empty() ? feature.name : feature.column;
}

/// id -> count, by open addressing.
class Counter {
 public:
  Counter() : slots_(kMinSlots) {}

  void add(std::int64_t id) {
    if (2 * used_ >= slots_.size()) {
      grow();
    }
    Slot& slot = find(id);
    if (slot.count++ == 0) {
      slot.id = id;
      ++used_;
    }
  }

  /// The places of the next ids are fetched meanwhile; where they have moved, it was in vain.
  void add_all(std::span<const std::int64_t> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + kFetchAhead < ids.size()) {
        const std::uint64_t hash = mix64(static_cast<std::uint64_t>(ids[i + kFetchAhead]));
        __builtin_prefetch(&slots_[hash & (slots_.size() - 1)], 1);
      }
      add(ids[i]);
    }
  }

  /// Ids seen at least `min_count` times, by descending count, then ascending id.
  [[nodiscard]] std::vector<std::int64_t> frequent(std::int64_t min_count) const {
    std::vector<Slot> kept;
    std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(kept),
                 [&](const Slot& slot) { return slot.count > 0 && slot.count >= min_count; });
    std::sort(kept.begin(), kept.end(), [](const Slot& a, const Slot& b) {
      return a.count != b.count ? a.count > b.count : a.id < b.id;
    });
    std::vector<std::int64_t> ids(kept.size());
    std::transform(kept.begin(), kept.end(), ids.begin(), [](const Slot& slot) { return slot.id; });
    return ids;
  }

  [[nodiscard]] std::size_t distinct() const { return used_; }

 private:
  struct Slot {
    std::int64_t id = 0;
    std::int64_t count = 0;
  };

  Slot& find(std::int64_t id) {
    const std::uint64_t mask = slots_.size() - 1;
    std::uint64_t at = mix64(static_cast<std::uint64_t>(id)) & mask;
    while (slots_[at].count != 0 && slots_[at].id != id) {
      at = (at + 1) & mask;
    }
    return slots_[at];
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.count != 0) {
        find(slot.id) = slot;
      }
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

/// What is counted for one table.
struct TableCount {
  const spec::Table* table = nullptr;
  std::int64_t min_count = 1;
  std::vector<std::int64_t> columns;  ///< of the schema; a column may be there twice
  Counter counter;
};

std::vector<TableCount> plan_counts(const spec::Config& config, const Schema& schema) {
  std::vector<TableCount> plan;
  for (const spec::Table& table : config.tables) {
    TableCount count;
    count.table = &table;
    for (const spec::SparseFeature& feature : config.sparse_features) {
      if (feature.mapping != spec::IdMapping::kVocabulary || table_of(feature) != table.name) {
        continue;
      }
      if (!count.columns.empty() && count.min_count != feature.min_count) {
        fail(ErrorCode::kConfig,
             "features of table '{}' share one vocabulary but ask for min_count {} and {} (feature "
             "'{}'); give them the same",
             table.name, count.min_count, feature.min_count, feature.name);
      }
      count.min_count = feature.min_count;
      count.columns.push_back(schema.categorical_index(column_of(feature)));
    }
    if (!count.columns.empty()) {
      plan.push_back(std::move(count));
    }
  }
  return plan;
}

std::vector<std::string> vocabulary_columns(const spec::Config& config, const Schema& schema) {
  std::vector<std::string> columns;
  for (const spec::SparseFeature& feature : config.sparse_features) {
    if (feature.mapping != spec::IdMapping::kVocabulary) {
      continue;
    }
    const std::string& column = column_of(feature);
    if (schema.categorical_index(column) < 0) {
      fail(ErrorCode::kConfig, "feature '{}': the data have no categorical column '{}'",
           feature.name, column);
    }
    columns.push_back(column);
  }
  return columns;
}

/// A range of samples, decoded by one task.
struct CountedBlock {
  std::vector<std::int64_t> sample_ids;
  RawBlock columns;

  void read(Source& train, std::int64_t first, std::int64_t count) {
    sample_ids.resize(at(count));
    std::iota(sample_ids.begin(), sample_ids.end(), first);
    train.read(sample_ids, columns);
  }
};

/// Blocks are decoded by as many tasks as the source allows, then each table's ids are counted by
/// one task: sums do not depend on the order.
void count_all(Source& train,
               std::vector<TableCount>& plan,
               ThreadPool& pool,
               WorkProgress& progress) {
  std::vector<CountedBlock> blocks(train.concurrent_reads() ? at(pool.threads()) : 1);
  const std::int64_t window = kBlock * static_cast<std::int64_t>(blocks.size());
  for (std::int64_t first = 0;; first += window) {
    const std::int64_t loaded = train.load(first, window);
    if (loaded == 0) {
      return;
    }
    progress.add(loaded);
    const std::int64_t filled = (loaded + kBlock - 1) / kBlock;
    pool.parallel_for(filled, [&](std::int64_t i) {
      blocks[at(i)].read(train, first + i * kBlock, std::min(kBlock, loaded - i * kBlock));
    });
    pool.parallel_for(static_cast<std::int64_t>(plan.size()), [&](std::int64_t t) {
      TableCount& count = plan[at(t)];
      for (std::int64_t i = 0; i < filled; ++i) {
        for (const std::int64_t column : count.columns) {
          count.counter.add_all(blocks[at(i)].columns.categorical[at(column)].ids);
        }
      }
    });
  }
}

Vocabulary keep_frequent(const TableCount& count) {
  std::vector<std::int64_t> ids = count.counter.frequent(count.min_count);
  const std::size_t distinct = count.counter.distinct();
  const std::size_t kept = ids.size();
  const std::size_t room = at(std::max<std::int64_t>(0, count.table->num_embeddings - 1));
  if (kept > room) {
    log_warning(
        "table '{}': {} ids occur at least {} times, and with the row for unknown ids they need "
        "num_embeddings {}; it has {}, so the {} most frequent are kept",
        count.table->name, kept, count.min_count, kept + 1, count.table->num_embeddings, room);
    ids.resize(room);
  }
  log_info("table '{}': vocabulary of {} ids, of {} distinct in the training data",
           count.table->name, ids.size(), distinct);
  return {count.table->name, std::move(ids)};
}

class Writer {
 public:
  template <typename T>
  void value(T v) {
    raw(&v, sizeof v);
  }

  void raw(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + size);
  }

  std::vector<std::byte> finish() {
    value(hash_bytes(out_));
    return std::move(out_);
  }

 private:
  std::vector<std::byte> out_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view name) : left_(bytes), name_(name) {}

  template <typename T>
  T value() {
    T v;
    raw(&v, sizeof v);
    return v;
  }

  void raw(void* out, std::size_t size) {
    need(size);
    if (size > 0) {
      std::memcpy(out, left_.data(), size);
    }
    left_ = left_.subspan(size);
  }

  /// Checked before anything of that size is allocated.
  void need(std::uint64_t size) const {
    if (size > left_.size()) {
      fail(ErrorCode::kData, "the vocabularies of '{}' end early: {} bytes where {} are needed",
           name_, left_.size(), size);
    }
  }

  [[nodiscard]] std::size_t left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
  std::string_view name_;
};

}  // namespace

Vocabulary::Vocabulary(std::string table, std::vector<std::int64_t> ids)
    : table_(std::move(table)), ids_(std::move(ids)) {
  slots_.assign(std::bit_ceil(std::max<std::uint64_t>(kMinSlots, 2 * ids_.size())), {});
  mask_ = slots_.size() - 1;
  for (std::size_t k = 0; k < ids_.size(); ++k) {
    std::uint64_t at = mix64(static_cast<std::uint64_t>(ids_[k])) & mask_;
    while (slots_[at].row != 0) {
      if (slots_[at].id == ids_[k]) {
        fail(ErrorCode::kData, "the vocabulary of table '{}' holds id {} twice", table_, ids_[k]);
      }
      at = (at + 1) & mask_;
    }
    slots_[at] = {ids_[k], static_cast<std::int64_t>(k) + 1};
  }
}

std::int64_t Vocabulary::row(std::int64_t id) const {
  std::uint64_t at = mix64(static_cast<std::uint64_t>(id)) & mask_;
  while (slots_[at].row != 0 && slots_[at].id != id) {
    at = (at + 1) & mask_;
  }
  return slots_[at].row;
}

void Vocabulary::rows_of(std::span<const std::int64_t> ids, std::span<std::int64_t> rows) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + kFetchAhead < ids.size()) {
      __builtin_prefetch(&slots_[mix64(static_cast<std::uint64_t>(ids[i + kFetchAhead])) & mask_]);
    }
    rows[i] = row(ids[i]);
  }
}

Vocabularies::Vocabularies(std::vector<Vocabulary> items) : items_(std::move(items)) {
}

const Vocabulary* Vocabularies::find(std::string_view table) const {
  const auto it = std::find_if(items_.begin(), items_.end(),
                               [table](const Vocabulary& v) { return v.table() == table; });
  return it == items_.end() ? nullptr : &*it;
}

// Layout: magic u64, version u32, count u32; per vocabulary: name length u32, name, ids u64, ids
// i64 each; XXH3 of all before, u64.
std::vector<std::byte> Vocabularies::serialize() const {
  Writer out;
  out.value(kMagic);
  out.value(kVersion);
  out.value(static_cast<std::uint32_t>(items_.size()));
  for (const Vocabulary& item : items_) {
    out.value(static_cast<std::uint32_t>(item.table().size()));
    out.raw(item.table().data(), item.table().size());
    out.value(static_cast<std::uint64_t>(item.ids().size()));
    out.raw(item.ids().data(), item.ids().size_bytes());
  }
  return out.finish();
}

Vocabularies Vocabularies::parse(std::span<const std::byte> bytes, std::string_view name) {
  Reader in(bytes, name);
  if (in.value<std::uint64_t>() != kMagic) {
    fail(ErrorCode::kData, "'{}' does not hold vocabularies", name);
  }
  const auto version = in.value<std::uint32_t>();
  if (version != kVersion) {
    fail(ErrorCode::kData, "the vocabularies of '{}' have version {}; this Weft reads version {}",
         name, version, kVersion);
  }
  in.need(sizeof(std::uint32_t) + sizeof(std::uint64_t));
  std::uint64_t stored = 0;
  const std::size_t body = bytes.size() - sizeof stored;
  std::memcpy(&stored, bytes.data() + body, sizeof stored);
  if (hash_bytes(bytes.first(body)) != stored) {
    fail(ErrorCode::kData, "the vocabularies of '{}' are damaged: their checksum does not agree",
         name);
  }
  std::vector<Vocabulary> items;
  for (auto count = in.value<std::uint32_t>(); count > 0; --count) {
    const auto length = in.value<std::uint32_t>();
    in.need(length);
    std::string table(length, '\0');
    in.raw(table.data(), table.size());
    const auto size = in.value<std::uint64_t>();
    in.need(size > in.left() ? size : size * sizeof(std::int64_t));
    std::vector<std::int64_t> ids(size);
    in.raw(ids.data(), ids.size() * sizeof(std::int64_t));
    items.emplace_back(std::move(table), std::move(ids));
  }
  if (in.left() != sizeof stored) {
    fail(ErrorCode::kData, "the vocabularies of '{}' are followed by {} bytes too many", name,
         in.left() - sizeof stored);
  }
  return Vocabularies(std::move(items));
}

bool needs_vocabularies(const spec::Config& config) {
  return std::any_of(config.sparse_features.begin(), config.sparse_features.end(),
                     [](const spec::SparseFeature& feature) {
                       return feature.mapping == spec::IdMapping::kVocabulary;
                     });
}

Vocabularies build_vocabularies(Source& train,
                                const spec::Config& config,
                                ThreadPool* pool,
                                WorkProgress* progress) {
  if (!needs_vocabularies(config)) {
    return {};
  }
  train.select(vocabulary_columns(config, train.schema()));
  std::vector<TableCount> plan = plan_counts(config, train.schema());
  ThreadPool own(1);
  const PoolUse use(train, pool != nullptr ? *pool : own);
  WorkProgress unread;
  WorkProgress& seen = progress != nullptr ? *progress : unread;
  const std::string described = train.describe();
  seen.begin({.activity = "counting the ids of",
              .place = described,
              .total = train.size(),
              .unit = WorkProgress::Unit::kSamples});
  const ProgressUse reports(train, seen);
  count_all(train, plan, pool != nullptr ? *pool : own, seen);
  std::vector<Vocabulary> items;
  items.reserve(plan.size());
  for (const TableCount& count : plan) {
    items.push_back(keep_frequent(count));
  }
  return Vocabularies(std::move(items));
}

void check_vocabularies(const Vocabularies& vocabularies, const spec::Config& config) {
  for (const spec::SparseFeature& feature : config.sparse_features) {
    if (feature.mapping != spec::IdMapping::kVocabulary) {
      continue;
    }
    const std::string& name = table_of(feature);
    const Vocabulary* vocabulary = vocabularies.find(name);
    if (vocabulary == nullptr) {
      fail(ErrorCode::kConfig, "feature '{}': there is no vocabulary for table '{}'", feature.name,
           name);
    }
    const auto table = std::find_if(config.tables.begin(), config.tables.end(),
                                    [&](const spec::Table& t) { return t.name == name; });
    if (table == config.tables.end() || vocabulary->rows() > table->num_embeddings) {
      fail(ErrorCode::kConfig,
           "feature '{}': the vocabulary of table '{}' needs num_embeddings {}, but it has {}",
           feature.name, name, vocabulary->rows(),
           table == config.tables.end() ? 0 : table->num_embeddings);
    }
  }
}

}  // namespace weft::data
