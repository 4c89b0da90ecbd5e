#include "weft/data/hot_rows.h"

#include <algorithm>

#include "weft/data/feature_mapper.h"
#include "weft/data/id_counter.h"
#include "weft/data/vocabulary.h"

namespace weft::data {
namespace {

/// The configuration with the features alone whose rows are counted.
spec::Config counted_features(const spec::Config& config) {
  spec::Config counted = config;
  counted.dense_features.clear();
  counted.tasks.clear();
  std::erase_if(counted.sparse_features, [](const spec::SparseFeature& feature) {
    return feature.mapping == spec::IdMapping::kVocabulary;
  });
  return counted;
}

}  // namespace

struct RowCounter::State {
  State(const spec::Config& all,
        const Schema& schema,
        const std::string& source_name,
        std::int64_t most_distinct)
      : config(counted_features(all)),
        mapper(config, schema, vocabularies, source_name),
        exact_distinct(most_distinct) {}

  struct Table {
    std::int64_t number = 0;
    std::int64_t ids = 0;
    IdCounter rows;
  };

  Table& table(std::int64_t number) {
    for (Table& known : tables) {
      if (known.number == number) {
        return known;
      }
    }
    return tables.emplace_back(
        Table{.number = number, .ids = 0, .rows = IdCounter(exact_distinct)});
  }

  spec::Config config;
  Vocabularies vocabularies;
  FeatureMapper mapper;
  std::vector<Table> tables;
  Batch batch;
  std::int64_t exact_distinct;
};

RowCounter::RowCounter(const spec::Config& config,
                       const Schema& schema,
                       const std::string& source_name,
                       std::int64_t exact_distinct)
    : state_(std::make_unique<State>(config, schema, source_name, exact_distinct)) {
}

RowCounter::~RowCounter() = default;

void RowCounter::add(const RawBlock& block) {
  state_->mapper.map(block, state_->batch);
  const spec::Config& config = state_->config;
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    State::Table& table = state_->table(spec::table_index(config, config.sparse_features[f]));
    const JaggedView bags = state_->batch.sparse.feature(static_cast<std::int64_t>(f));
    table.ids += bags.num_values();
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      for (const std::int64_t row : bags.bag(b)) {
        table.rows.add(row);
      }
    }
  }
}

std::vector<HotRows> RowCounter::most_frequent(std::int64_t most) const {
  std::vector<HotRows> all;
  for (const State::Table& table : state_->tables) {
    HotRows& hot = all.emplace_back();
    hot.table = state_->config.tables[static_cast<std::size_t>(table.number)].name;
    hot.ids = table.ids;
    hot.most = most;
    for (const IdCounter::Count& count : table.rows.most_frequent(most)) {
      hot.rows.push_back({.row = count.id,
                          .share = static_cast<double>(count.count) /
                                   static_cast<double>(std::max<std::int64_t>(table.ids, 1))});
    }
  }
  return all;
}

}  // namespace weft::data
