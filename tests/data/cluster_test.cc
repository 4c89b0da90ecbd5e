// Clustering: a permutation inside runs of parts, by the rule of its header, of these runs alone;
// and what it saves where samples share rows, and where they do not.
#include "weft/data/cluster.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/data/data_support.h"
#include "weft/base/at.h"
#include "weft/data/loader.h"

namespace weft::data {
namespace {

using Ids = std::vector<std::int64_t>;

/// Two features read one table, a third has another.
spec::Config three_features() {
  spec::Config config;
  for (const auto& [name, table] :
       {std::pair("a", "one"), std::pair("b", "two"), std::pair("c", "one")}) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = name;
    feature.table = table;
  }
  for (const char* name : {"one", "two"}) {
    spec::Table& table = config.tables.emplace_back();
    table.name = name;
    table.num_embeddings = 1000;
    table.embedding_dim = 4;
  }
  return config;
}

/// Bags of each feature of each sample: [feature][sample].
using Bags = std::vector<std::vector<Ids>>;

/// A whole global batch whose other values tell the sample.
Batch make_batch(const spec::Config& config, const Bags& bags, bool weighted) {
  Batch batch;
  batch.global_size = static_cast<std::int64_t>(bags.front().size());
  batch.positions = {0, batch.global_size};
  Ids lengths;
  Ids values;
  std::vector<float> weights;
  std::vector<std::string> keys;
  for (std::size_t f = 0; f < bags.size(); ++f) {
    keys.push_back(config.sparse_features[f].name);
    for (std::size_t s = 0; s < bags[f].size(); ++s) {
      lengths.push_back(static_cast<std::int64_t>(bags[f][s].size()));
      for (const std::int64_t row : bags[f][s]) {
        values.push_back(row);
        weights.push_back(static_cast<float>(100 * s + f));
      }
    }
  }
  batch.sparse = from_lengths(keys, batch.global_size, lengths, values,
                              weighted ? weights : std::vector<float>{});
  for (std::int64_t s = 0; s < batch.global_size; ++s) {
    batch.sample_ids.push_back(1000 + s);
    batch.dense.insert(batch.dense.end(),
                       {static_cast<float>(s), static_cast<float>(-s), static_cast<float>(2 * s)});
    batch.labels.insert(batch.labels.end(), {static_cast<float>(s % 2), 1.0F});
    batch.label_weights.insert(batch.label_weights.end(), {static_cast<float>(s), 0.5F});
  }
  return batch;
}

/// The samples that ranks [begin, end) of so many positions would have.
Batch share_of(const Batch& whole, Range samples) {
  Batch share;
  share.global_size = whole.global_size;
  share.positions = samples;
  const auto cut = [&](const auto& from, auto& to, std::int64_t width) {
    to.assign(from.begin() + samples.begin * width, from.begin() + samples.end * width);
  };
  cut(whole.sample_ids, share.sample_ids, 1);
  cut(whole.dense, share.dense, 3);
  cut(whole.labels, share.labels, 2);
  cut(whole.label_weights, share.label_weights, 2);
  share.sparse = slice_samples(whole.sparse, samples.begin, samples.end);
  return share;
}

/// All that a batch has of sample i, as text that can be compared.
auto sample_of(const Batch& batch, std::int64_t i) {
  std::vector<Ids> bags;
  std::vector<float> weights;
  for (std::int64_t f = 0; f < batch.sparse.num_features(); ++f) {
    const JaggedView view = batch.sparse.feature(f);
    const auto bag = view.bag(i);
    bags.emplace_back(bag.begin(), bag.end());
    for (std::int64_t k = view.offsets[at(i)];
         view.weights != nullptr && k < view.offsets[at(i + 1)]; ++k) {
      weights.push_back(view.weights[k]);
    }
  }
  const auto rows = [i](const std::vector<float>& values, std::int64_t width) {
    return std::vector<float>(values.begin() + i * width, values.begin() + (i + 1) * width);
  };
  return std::tuple(batch.sample_ids[at(i)], bags, weights, rows(batch.dense, 3),
                    rows(batch.labels, 2), rows(batch.label_weights, 2));
}

using Key = std::pair<std::int64_t, std::int64_t>;  ///< table, row

std::set<Key> keys_of(const spec::Config& config, const Batch& batch, Range samples) {
  std::set<Key> keys;
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const std::int64_t table = spec::table_index(config, config.sparse_features[f]);
    for (std::int64_t s = samples.begin; s < samples.end; ++s) {
      for (const std::int64_t row : batch.sparse.feature(static_cast<std::int64_t>(f)).bag(s)) {
        keys.emplace(table, row);
      }
    }
  }
  return keys;
}

/// Sum over parts of the rows that a part reads.
std::int64_t rows_of_parts(const spec::Config& config, const Batch& batch, std::int64_t parts) {
  std::int64_t sum = 0;
  for (std::int64_t p = 0; p < parts; ++p) {
    sum += std::ssize(keys_of(config, batch, part_samples(batch.global_size, parts, p)));
  }
  return sum;
}

/// The rule of the header, word by word: where each place of the batch takes its sample from.
Ids plain_order(const spec::Config& config,
                const Batch& batch,
                std::int64_t parts,
                std::int64_t run) {
  Ids order;
  for (std::int64_t first = 0; first < parts; first += run) {
    const std::int64_t last = std::min(first + run, parts) - 1;
    const Range all{part_samples(batch.global_size, parts, first).begin,
                    part_samples(batch.global_size, parts, last).end};
    std::map<Key, int> samples_with;
    std::map<std::int64_t, std::set<Key>> left;
    for (std::int64_t s = all.begin; s < all.end; ++s) {
      left[s] = keys_of(config, batch, {s, s + 1});
      for (const Key& key : left[s]) {
        ++samples_with[key];
      }
    }
    for (auto& [sample, keys] : left) {
      std::erase_if(keys, [&](const Key& key) { return samples_with[key] == 1; });
    }
    std::set<Key> has;
    for (std::int64_t p = first; p <= last; ++p) {
      Ids chosen;
      for (std::int64_t i = 0; i < part_samples(batch.global_size, parts, p).size(); ++i) {
        std::int64_t best = -1;
        std::int64_t most = -1;
        for (const auto& [sample, keys] : left) {
          const auto shared = std::count_if(keys.begin(), keys.end(),
                                            [&](const Key& key) { return has.contains(key); });
          const std::int64_t share =
              keys.empty() ? 0 : shared * ((std::int64_t{1} << 30) / std::ssize(keys));
          if (share > most) {
            best = sample;
            most = share;
          }
        }
        if (i == 0) {
          has.clear();
        }
        has.insert(left[best].begin(), left[best].end());
        left.erase(best);
        chosen.push_back(best);
      }
      std::sort(chosen.begin(), chosen.end());
      order.insert(order.end(), chosen.begin(), chosen.end());
    }
  }
  return order;
}

/// Which sample of `before` is at each place of `after`.
Ids order_of(const Batch& after) {
  Ids order = after.sample_ids;
  for (std::int64_t& id : order) {
    id -= 1000;
  }
  return order;
}

Bags any_bags(std::int64_t samples, std::int64_t rows) {
  Bags bags(3, std::vector<Ids>(at(samples)));
  for (std::vector<Ids>& feature : bags) {
    for (Ids& bag : feature) {
      bag = *rc::gen::container<Ids>(*rc::gen::inRange<std::size_t>(0, 5),
                                     rc::gen::inRange<std::int64_t>(0, rows));
    }
  }
  return bags;
}

RC_GTEST_PROP(Cluster, PermutesInsideRunsByTheRule, ()) {
  const spec::Config config = three_features();
  const auto parts = *rc::gen::inRange<std::int64_t>(1, 10);
  const auto run = *rc::gen::inRange<std::int64_t>(1, 12);
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 150);
  const Batch before =
      make_batch(config, any_bags(samples, *rc::gen::inRange(2, 200)), *rc::gen::arbitrary<bool>());
  Batch after = before;
  SampleClusterer clusterer(config, {.parts = parts, .cluster_parts = run, .own = {0, parts}});
  clusterer.cluster(after);
  after.sparse.validate();
  const Ids order = order_of(after);
  RC_ASSERT(order == plain_order(config, before, parts, run));
  Ids sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < samples; ++i) {
    RC_ASSERT(sorted[at(i)] == i);
    RC_ASSERT(sample_of(after, i) == sample_of(before, order[at(i)]));
  }
  RC_ASSERT(after.positions == before.positions);
  RC_ASSERT(after.sparse.keys == before.sparse.keys);
}

RC_GTEST_PROP(Cluster, IsAFunctionOfTheRunAlone, ()) {
  const spec::Config config = three_features();
  const auto parts = *rc::gen::inRange<std::int64_t>(2, 9);
  const std::int64_t run = 2;
  const auto samples = *rc::gen::inRange<std::int64_t>(parts, 60);
  Bags bags = any_bags(samples, 20);
  const std::int64_t first = part_samples(samples, parts, run).begin;  // of the second run
  SampleClusterer clusterer(config, {.parts = parts, .cluster_parts = run, .own = {0, parts}});
  Batch one = make_batch(config, bags, false);
  clusterer.cluster(one);
  const Bags others = any_bags(samples, 20);
  for (std::size_t f = 0; f < bags.size(); ++f) {
    std::copy(others[f].begin() + first, others[f].end(), bags[f].begin() + first);
  }
  Batch two = make_batch(config, bags, false);
  clusterer.cluster(two);  // what it had before means nothing
  for (std::int64_t i = 0; i < first; ++i) {
    RC_ASSERT(sample_of(one, i) == sample_of(two, i));
  }
}

RC_GTEST_PROP(Cluster, AnyNumberOfRanksGivesTheSameGlobalBatch, ()) {
  const spec::Config config = three_features();
  const std::int64_t parts = 48;
  const auto run = *rc::gen::element<std::int64_t>(2, 3);
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 150);
  const Batch before = make_batch(config, any_bags(samples, 40), true);
  Batch whole = before;
  SampleClusterer(config, {.parts = parts, .cluster_parts = run, .own = {0, parts}}).cluster(whole);
  for (const std::int64_t ranks : {2, 4, 8}) {
    for (std::int64_t r = 0; r < ranks; ++r) {
      const Range own = rank_samples(samples, parts, ranks, r);
      Batch share = share_of(before, own);
      SampleClusterer(config,
                      {.parts = parts, .cluster_parts = run, .own = rank_parts(parts, ranks, r)})
          .cluster(share);
      for (std::int64_t i = 0; i < own.size(); ++i) {
        RC_ASSERT(sample_of(share, i) == sample_of(whole, own.begin + i));
      }
    }
  }
}

TEST(Cluster, SamplesOfOneUserMeet) {
  // Rows of users 0 0 1 1 2 2 3 3 in the order 0 1 2 3 0 1 2 3, in two parts of four samples.
  const spec::Config config = three_features();
  Bags bags(3, std::vector<Ids>(8));
  for (std::size_t s = 0; s < 8; ++s) {
    const auto user = static_cast<std::int64_t>(s % 4);
    bags[0][s] = {10 * user, 10 * user + 1};
    bags[1][s] = {static_cast<std::int64_t>(s), 500};  // one of its own, one that all have
  }
  Batch batch = make_batch(config, bags, false);
  SampleClusterer clusterer(config, {.parts = 2, .cluster_parts = 2, .own = {0, 2}});
  clusterer.cluster(batch);
  EXPECT_EQ(order_of(batch), (Ids{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(Cluster, FeaturesOfOneTableShareRowsAndTablesDoNot) {
  const spec::Config config = three_features();
  Bags bags(3, std::vector<Ids>(4));
  bags[0][0] = {7};  // table one
  bags[1][1] = {7};  // table two
  bags[1][2] = {8};
  bags[2][3] = {7};  // table one
  Batch batch = make_batch(config, bags, false);
  SampleClusterer clusterer(config, {.parts = 2, .cluster_parts = 2, .own = {0, 2}});
  clusterer.cluster(batch);
  EXPECT_EQ(order_of(batch), (Ids{0, 3, 1, 2}));
}

TEST(Cluster, RunsThatAreNotWholeAreRefused) {
  EXPECT_THROW(SampleClusterer(three_features(), {.parts = 8, .cluster_parts = 4, .own = {0, 6}}),
               Error);
  EXPECT_THROW(SampleClusterer(three_features(), {.parts = 8, .cluster_parts = 4, .own = {2, 8}}),
               Error);
  EXPECT_NO_THROW(
      SampleClusterer(three_features(), {.parts = 7, .cluster_parts = 4, .own = {4, 7}}));
}

// ---- what it saves ---------------------------------------------------------------------------

/// `users` > 0: samples of one user have a list of 20 rows in common and 5 of their own.
Bags drawn_bags(std::int64_t samples, std::int64_t users, std::int64_t rows) {
  std::mt19937_64 random(5);
  const auto draw = [&] { return static_cast<std::int64_t>(random() % at(rows)); };
  std::vector<Ids> lists(at(std::max<std::int64_t>(users, 1)));
  for (Ids& list : lists) {
    std::generate_n(std::back_inserter(list), 20, draw);
  }
  Bags bags(3, std::vector<Ids>(at(samples)));
  for (std::int64_t s = 0; s < samples; ++s) {
    Ids& bag = bags[0][at(s)];
    if (users > 0) {
      bag = lists[random() % at(users)];
    }
    std::generate_n(std::back_inserter(bag), 25 - std::ssize(bag), draw);
  }
  return bags;
}

/// Rows of parts, as a multiple of the rows of the batch, without and with clustering of all parts.
std::pair<double, double> inflation(const Bags& bags, std::int64_t rows, std::int64_t parts) {
  spec::Config config = three_features();
  config.tables[0].num_embeddings = rows;
  Batch batch = make_batch(config, bags, false);
  const auto whole = static_cast<double>(rows_of_parts(config, batch, 1));
  const auto before = static_cast<double>(rows_of_parts(config, batch, parts));
  SampleClusterer clusterer(config, {.parts = parts, .cluster_parts = parts, .own = {0, parts}});
  clusterer.cluster(batch);
  EXPECT_EQ(rows_of_parts(config, batch, 1), static_cast<std::int64_t>(whole));
  return {before / whole, static_cast<double>(rows_of_parts(config, batch, parts)) / whole};
}

TEST(Cluster, SavesRowsOfPartsWhereSamplesShareThem) {
  const auto [before, after] = inflation(drawn_bags(512, 128, 1'000'000), 1'000'000, 8);
  EXPECT_GT(before, 1.8);
  EXPECT_LT(after, 1.1);
}

TEST(Cluster, SavesLittleWhereNoneAreShared) {
  const auto [before, after] = inflation(drawn_bags(512, 0, 20'000), 20'000, 8);
  EXPECT_GT(before, 1.1);
  EXPECT_LE(after, before);
  EXPECT_GT(after, 0.93 * before);
}

// ---- the loader ------------------------------------------------------------------------------

/// A log whose samples share the ids of their visitors.
spec::Config visitor_log() {
  spec::Config config;
  config.seed = 11;
  config.batch_size = 96;
  config.data.synthetic.samples = 500;
  config.data.synthetic.eval_samples = 200;
  config.data.synthetic.dense_columns = 2;
  config.data.synthetic.visitors = 20;
  for (const char* name : {"x", "y"}) {
    spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
    column.name = name;
    column.cardinality = 5000;
    column.max_length = 4;
    column.repeat = 0.9;
    config.sparse_features.emplace_back().name = name;
    spec::Table& table = config.tables.emplace_back();
    table.name = name;
    table.num_embeddings = 5000;
  }
  for (const char* name : {"d1", "d2"}) {
    config.dense_features.emplace_back().name = name;
  }
  return config;
}

struct Read {
  ReaderPosition after;
  Ids ids;     ///< of the global batch
  Ids values;  ///< of feature x, rank by rank
  std::vector<float> dense;
  friend bool operator==(const Read&, const Read&) = default;
};

std::vector<Read> read_all(const spec::Config& config,
                           LoaderOptions options,
                           std::int64_t ranks,
                           Split split = Split::kTrain) {
  static const Vocabularies none;
  std::vector<Read> all;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    Loader loader(open_source(config, split), config, none, options);
    Batch batch;
    for (std::size_t k = 0; loader.next(batch); ++k) {
      if (options.rank == 0) {
        all.emplace_back();
      }
      Read& read = all[k];
      read.after = loader.position();
      read.ids.insert(read.ids.end(), batch.sample_ids.begin(), batch.sample_ids.end());
      const JaggedView x = batch.sparse.feature(0);
      read.values.insert(read.values.end(), x.values + x.offsets.front(),
                         x.values + x.offsets.back());
      read.dense.insert(read.dense.end(), batch.dense.begin(), batch.dense.end());
    }
  }
  return all;
}

TEST(ClusteredLoader, GivesTheSameBatchesOnAnyRanksAndAfterAResume) {
  spec::Config config = visitor_log();
  config.train.epochs = 2;
  LoaderOptions options = LoaderOptions::train(config, 0, 1, 8);
  const std::vector<Read> plain = read_all(config, options, 1);
  config.pipeline.cluster_parts = 2;
  options = LoaderOptions::train(config, 0, 1, 8);
  EXPECT_EQ(options.cluster_parts, 2);
  const std::vector<Read> clustered = read_all(config, options, 1);
  ASSERT_EQ(clustered.size(), 12U);
  ASSERT_EQ(plain.size(), clustered.size());
  for (std::size_t k = 0; k < plain.size(); ++k) {
    EXPECT_NE(plain[k].ids, clustered[k].ids) << "nothing was moved in batch " << k;
    EXPECT_TRUE(std::is_permutation(plain[k].ids.begin(), plain[k].ids.end(),
                                    clustered[k].ids.begin(), clustered[k].ids.end()));
    EXPECT_EQ(plain[k].after, clustered[k].after);
  }
  for (const std::int64_t ranks : {2, 4}) {
    EXPECT_EQ(read_all(config, options, ranks), clustered) << ranks;
  }
  options.start = clustered[3].after;  // inside the first epoch
  EXPECT_EQ(read_all(config, options, 2),
            std::vector<Read>(clustered.begin() + 4, clustered.end()));
}

TEST(ClusteredLoader, ReadsEvaluationDataInTheirOrder) {
  spec::Config config = visitor_log();
  config.pipeline.cluster_parts = 4;
  const LoaderOptions options = LoaderOptions::eval(config, 0, 1, 8);
  EXPECT_EQ(options.cluster_parts, 0);
  Ids ids;
  // Three ranks cut through runs of 4 parts, which matters to nobody here.
  for (const Read& read : read_all(config, options, 3, Split::kEval)) {
    ids.insert(ids.end(), read.ids.begin(), read.ids.end());
  }
  ASSERT_EQ(ids.size(), 200U);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

TEST(ClusteredLoader, RefusesRunsThatRanksCutThrough) {
  spec::Config config = visitor_log();
  config.pipeline.cluster_parts = 4;
  expect_error(ErrorCode::kConfig, {"pipeline.cluster_parts", "rank 1 of 3"},
               [&] { read_all(config, LoaderOptions::train(config, 0, 1, 8), 3); });
}

}  // namespace
}  // namespace weft::data
