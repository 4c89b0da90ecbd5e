// Every key of the configuration that is said to decide weights does so: a job with another value
// of it has another weights_hash. Keys are found by the walk over their description; one that is
// not in the table below fails the test, and so does a line whose key is gone.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/source.h"
#include "weft/data/weft_format.h"
#include "weft/spec/describe.h"

namespace weft::train {
namespace {

using Overrides = std::vector<std::string>;
using Keys = std::set<std::string>;

/// What a walk over a configuration finds: keys as in "tables[].init_scale", each with the text of
/// its values, of all entries in their order.
struct Found {
  std::map<std::string, Overrides> values;
  Keys deciding;
};

class Collector final : public spec::Visitor {
 public:
  Collector(std::string prefix, Found& found) : prefix_(std::move(prefix)), found_(found) {}

  void value(const spec::Field& field, const spec::Value& value) override {
    const std::string key = prefix_ + std::string(field.name);
    found_.values[key].push_back(spec::value_text(value));
    const bool fixed = field.bounds.min == field.bounds.max;  // nothing else can be set
    if (field.decides_weights && !fixed) {
      found_.deciding.insert(key);
    }
  }

  void section(const spec::Field& field, const std::function<void(Visitor&)>& body) override {
    Collector inner(prefix_ + std::string(field.name) + ".", found_);
    body(inner);
  }

  void list(const spec::Field& field, const spec::ListAccess& access) override {
    Collector inner(prefix_ + std::string(field.name) + "[].", found_);
    for (std::size_t i = 0; i < access.size(); ++i) {
      access.visit(inner, i);
    }
    if (access.size() == 0) {
      access.visit_default(inner);
    }
  }

 private:
  std::string prefix_;
  Found& found_;
};

Found find_keys(spec::Config config) {
  Found found;
  Collector collector("", found);
  spec::visit(collector, config);
  return found;
}

/// How a key is tried: a job with `before`, and one with `set` too.
struct Trial {
  std::string key;
  Overrides set;
  Overrides before = {};
  int ranks = 1;
  Keys also = {};         ///< other keys that `set` changes with it
  std::string same = {};  ///< why the hash stays, where it does
};

/// Of `log.weft` below: labels "label" and "late", and the dense column "worth".
const Overrides kFromFile = {"data.format=weft", "data.path=FOLDER/log.weft"};

const Overrides kTwoGroups = {"mesh.groups=2", "train.steps=4"};

Overrides with(Overrides first, const Overrides& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

std::vector<Trial> trials_of_data() {
  const std::string columns = "data.synthetic.columns.";
  return {
      {"seed", {"seed=4"}},
      {"batch_size", {"batch_size=60"}},
      {.key = "data.format",
       .set = kFromFile,
       .also = {"data.path", "data.eval_fraction"},
       .same = "it says how the data is read; which data it is, its fingerprint says"},
      {"data.eval_fraction", {"data.eval_fraction=0.3"}, kFromFile},
      {"data.max_samples", {"data.max_samples=300"}},
      {"data.shuffle.enabled", {"data.shuffle.enabled=false"}},
      {"data.shuffle.window", {"data.shuffle.window=100"}},
      {"data.synthetic.samples", {"data.synthetic.samples=300"}},
      {"data.synthetic.dense_columns", {"data.synthetic.dense_columns=5"}},
      {"data.synthetic.visitors", {"data.synthetic.visitors=3"}, {columns + "item.repeat=0.5"}},
      {"data.synthetic.base_rate", {"data.synthetic.base_rate=0.5"}},
      {"data.synthetic.signal", {"data.synthetic.signal=4"}},
      {.key = "data.synthetic.columns[].name",
       .set = {columns + "rare.name=scarce", "sparse_features.rare.column=scarce"},
       .also = {"sparse_features[].column"}},
      {"data.synthetic.columns[].cardinality", {columns + "rare.cardinality=900"}},
      {"data.synthetic.columns[].zipf", {columns + "item.zipf=0.5"}},
      {"data.synthetic.columns[].min_length", {columns + "past.min_length=3"}},
      {"data.synthetic.columns[].max_length", {columns + "past.max_length=9"}},
      {"data.synthetic.columns[].missing", {columns + "item.missing=0.5"}},
      {"data.synthetic.columns[].repeat", {columns + "item.repeat=0.5"}},
      {"data.synthetic.columns[].teacher_scale", {columns + "item.teacher_scale=9"}},
      {"data.synthetic.columns[].weighted",
       {columns + "tags.weighted=false"},
       {"sparse_features.tags.weighted=false"}},
  };
}

std::vector<Trial> trials_of_features() {
  const std::string tags = "sparse_features.tags.";
  const std::string rare = "sparse_features.rare.";
  const std::string seen = "sparse_features.seen.";
  const Overrides standard = {"dense_features.d1.transform=standard"};
  return {
      {.key = "dense_features[].name",
       .set = {"dense_features.d1.name=price"},
       .before = {"dense_features.d1.column=d1"},
       .same = "inputs are counted, not called by their names"},
      {"dense_features[].column", {"dense_features.d1.column=d2"}},
      {"dense_features[].transform", {"dense_features.d1.transform=none"}},
      {"dense_features[].missing", {"dense_features.d1.missing=3"}},
      {"dense_features[].mean", {"dense_features.d1.mean=2"}, standard},
      {"dense_features[].scale", {"dense_features.d1.scale=2"}, standard},
      {.key = "sparse_features[].name",
       .set = {rare + "name=scarce"},
       .before = {rare + "column=rare", rare + "table=rare"},
       .same = "features are called by their names in messages alone"},
      {"sparse_features[].column", {rare + "column=item"}},
      {"sparse_features[].table", {rare + "table=item"}, {rare + "salt=x"}},
      {.key = "sparse_features[].mapping",
       .set = {tags + "mapping=hash"},
       .also = {"sparse_features[].salt"}},
      {"sparse_features[].salt", {rare + "salt=x"}},
      {"sparse_features[].min_count", {tags + "min_count=20"}, {tags + "mapping=vocabulary"}},
      {"sparse_features[].pooling", {seen + "pooling=sum"}},
      {"sparse_features[].weighted", {tags + "weighted=false"}},
      {"sparse_features[].max_length", {seen + "max_length=1"}},
      {"sparse_features[].target", {"sparse_features.past.target=few"}},
      {.key = "tasks[].name",
       .set = {"tasks.click.name=bought"},
       .same = "tasks are counted, not called by their names"},
      {"tasks[].column", {"tasks.click.column=late"}, kFromFile},
      {"tasks[].weight_column", {"tasks.click.weight_column=worth"}, kFromFile},
      {"tasks[].weight", {"tasks.click.weight=7"}},
  };
}

/// Of `optimizer`, a section below which the keys of `key` are: one table's, or all tables'.
std::vector<Trial> trials_of_optimizer(const std::string& key, const std::string& optimizer) {
  const Overrides adagrad = {optimizer + "type=adagrad"};
  const Overrides adam = {optimizer + "type=adam"};
  const Overrides l2 = {optimizer + "weight_decay_mode=l2", optimizer + "weight_decay=0.1"};
  std::vector<Trial> trials = {
      {key + "type", {optimizer + "type=adam"}},
      {key + "learning_rate", {optimizer + "learning_rate=0.5"}},
      {key + "eps", {optimizer + "eps=0.01"}},
      {key + "beta1", {optimizer + "beta1=0.5"}, adam},
      {key + "beta2", {optimizer + "beta2=0.5"}, adam},
      {key + "initial_accumulator", {optimizer + "initial_accumulator=1"}, adagrad},
      {key + "weight_decay", {optimizer + "weight_decay=0.2"}, l2},
      {key + "weight_decay_mode", {optimizer + "weight_decay_mode=decoupled"}, l2},
      {key + "max_norm", {optimizer + "max_norm=0.01"}},
  };
  return trials;
}

std::vector<Trial> trials_of_tables() {
  std::vector<Trial> trials = {
      {.key = "tables[].name",
       .set = {"tables.tags.name=labels", "sparse_features.tags.table=labels"},
       .also = {"sparse_features[].table"}},
      {"tables[].num_embeddings", {"tables.tags.num_embeddings=30"}},
      {"tables[].embedding_dim", {"tables.rare.embedding_dim=16"}, {"model.projection_dim=24"}},
      {"tables[].dtype", {"tables.item.dtype=bf16"}},
      {"tables[].init", {"tables.item.init=normal"}},
      {"tables[].init_scale", {"tables.item.init_scale=0.5"}},
      {.key = "tables[].groups", .set = {"tables.item.groups=1"}, .before = kTwoGroups, .ranks = 2},
  };
  for (const Trial& trial : trials_of_optimizer("tables[].optimizer.", "tables.item.optimizer.")) {
    trials.push_back(trial);
  }
  for (Trial trial : trials_of_optimizer("sparse_optimizer.", "sparse_optimizer.")) {
    trial.also = {"tables[].optimizer." + trial.key.substr(trial.key.find('.') + 1)};
    trials.push_back(trial);
  }
  return trials;
}

std::vector<Trial> trials_of_model() {
  const Overrides adam = {"dense_optimizer.type=adam"};
  const Overrides cross = {"model.type=dcnv2"};
  const Overrides decay = {"schedule.type=polynomial", "schedule.decay_start=3",
                           "schedule.decay_steps=20"};
  return {
      {"model.type", {"model.type=deepfm"}},
      {"model.bottom_mlp", {"model.bottom_mlp=[17, 24]"}},
      {"model.top_mlp", {"model.top_mlp=[17]"}},
      {"model.cross_layers", {"model.cross_layers=2"}, cross},
      {"model.cross_rank", {"model.cross_rank=5"}, cross},
      {.key = "model.projection_dim",
       .set = {"model.projection_dim=20", "model.bottom_mlp=[16, 20]"},
       .before = {"model.projection_dim=24"},
       .also = {"model.bottom_mlp"}},
      {"model.sequence", {"model.sequence=mean"}},
      {"model.attention_mlp", {"model.attention_mlp=[9]"}},
      {"model.compute", {"model.compute=bf16"}},
      {"dense_optimizer.type", {"dense_optimizer.type=sgd"}},
      {"dense_optimizer.learning_rate", {"dense_optimizer.learning_rate=0.02"}},
      {"dense_optimizer.eps", {"dense_optimizer.eps=0.01"}},
      {"dense_optimizer.beta1", {"dense_optimizer.beta1=0.5"}, adam},
      {"dense_optimizer.beta2", {"dense_optimizer.beta2=0.5"}, adam},
      {"dense_optimizer.initial_accumulator",
       {"dense_optimizer.initial_accumulator=1"},
       {"dense_optimizer.type=adagrad"}},
      {"dense_optimizer.weight_decay", {"dense_optimizer.weight_decay=0.1"}},
      {"dense_optimizer.clip_norm", {"dense_optimizer.clip_norm=0.001"}},
      {.key = "schedule.type",
       .set = decay,
       .also = {"schedule.decay_start", "schedule.decay_steps"}},
      {"schedule.warmup_steps", {"schedule.warmup_steps=5"}},
      {"schedule.decay_start", {"schedule.decay_start=4"}, decay},
      {"schedule.decay_steps", {"schedule.decay_steps=10"}, decay},
      {"schedule.power", {"schedule.power=1"}, decay},
      {"schedule.final_factor", {"schedule.final_factor=0.9"}, decay},
  };
}

std::vector<Trial> trials_of_ranks() {
  const Overrides averaged = with(kTwoGroups, {"sparse_optimizer.type=adagrad"});
  const Overrides int8 = {"codecs.forward=int8", "codecs.dense=int8"};
  return {
      {.key = "train.on_non_finite",
       .set = {"train.on_non_finite=skip"},
       .same = "all values are finite; NonFinite.SkipLeavesTheStepOut has others"},
      {.key = "pipeline.cluster_parts", .set = {"pipeline.cluster_parts=2"}, .ranks = 2},
      {.key = "mesh.groups", .set = {"mesh.groups=2"}, .ranks = 2},
      {.key = "mesh.sync", .set = {"mesh.sync=gradients"}, .before = averaged, .ranks = 2},
      {.key = "mesh.sync_every", .set = {"mesh.sync_every=2"}, .before = averaged, .ranks = 2},
      {.key = "mesh.moment_scale", .set = {"mesh.moment_scale=1"}, .before = averaged, .ranks = 2},
      {.key = "codecs.forward", .set = {"codecs.forward=bf16"}, .ranks = 2},
      {.key = "codecs.backward", .set = {"codecs.backward=bf16"}, .ranks = 2},
      {.key = "codecs.dense", .set = {"codecs.dense=bf16"}, .ranks = 2},
      {.key = "codecs.sync", .set = {"codecs.sync=bf16"}, .before = averaged, .ranks = 2},
      {.key = "codecs.group_size", .set = {"codecs.group_size=16"}, .before = int8, .ranks = 2},
      {.key = "codecs.rounding", .set = {"codecs.rounding=stochastic"}, .before = int8, .ranks = 2},
      {.key = "codecs.error_feedback",
       .set = {"codecs.error_feedback=false"},
       .before = int8,
       .ranks = 2},
  };
}

std::vector<Trial> all_trials() {
  std::vector<Trial> all;
  for (const auto& some : {trials_of_data(), trials_of_features(), trials_of_tables(),
                           trials_of_model(), trials_of_ranks()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

/// The fixture's log with one label more, which is another sample's, and a column of weights.
void write_log(const std::string& path) {
  const auto source = data::open_source(make_job(), data::Split::kTrain);
  data::Schema schema = source->schema();
  schema.labels.emplace_back("late");
  schema.dense.emplace_back("worth");
  std::vector<std::int64_t> ids(static_cast<std::size_t>(source->size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(i);
  }
  data::RawBlock block;
  source->load(0, source->size());
  source->read(ids, block);
  std::vector<float> late = block.labels[0];
  std::rotate(late.begin(), late.begin() + 1, late.end());
  block.labels.push_back(std::move(late));
  std::vector<float> worth(ids.size());
  for (std::size_t i = 0; i < worth.size(); ++i) {
    worth[i] = static_cast<float>(1 + i % 3);
  }
  block.dense.push_back(std::move(worth));
  data::WeftWriter writer(path, schema);
  writer.append(block);
  writer.finish();
}

class DecidingKeys : public ::testing::Test {
 protected:
  void SetUp() override { write_log(folder_.path() + "/log.weft"); }

  [[nodiscard]] spec::Config job(Overrides overrides) const {
    for (std::string& text : overrides) {
      if (const std::size_t at = text.find("FOLDER"); at != std::string::npos) {
        text.replace(at, 6, folder_.path());
      }
    }
    return make_job(overrides);
  }

  /// Each job is trained once.
  std::uint64_t hash(const spec::Config& config, int ranks) {
    const auto [at, fresh] = hashes_.try_emplace({spec::to_yaml(config), ranks}, 0);
    if (fresh) {
      at->second = train_on(ranks, job_options(config)).weights_hash;
    }
    return at->second;
  }

  void check(const Trial& trial) {
    SCOPED_TRACE(fmt::format("{}: {}", trial.key, fmt::join(trial.set, " ")));
    // Nothing but training: evaluations change no weights.
    const Overrides base = {"data.synthetic.eval_samples=0", "train.log_every=100"};
    const spec::Config before = job(with(base, trial.before));
    const spec::Config after = job(with(with(base, trial.before), trial.set));
    const Found was = find_keys(before);
    const Found is = find_keys(after);
    Keys changed;
    for (const auto& [key, values] : is.values) {
      if (was.values.at(key) != values) {
        changed.insert(key);
      }
    }
    EXPECT_TRUE(changed.contains(trial.key)) << "the key has the value it had";
    for (const std::string& key : changed) {
      EXPECT_TRUE(key == trial.key || trial.also.contains(key) || !is.deciding.contains(key))
          << key << " was changed too: the hash would differ for it";
    }
    if (trial.same.empty()) {
      EXPECT_NE(hash(after, trial.ranks), hash(before, trial.ranks));
    } else {
      EXPECT_EQ(hash(after, trial.ranks), hash(before, trial.ranks)) << trial.same;
    }
    EXPECT_NE(spec::config_hash(after), spec::config_hash(before));
  }

 private:
  TemporaryFolder folder_;
  std::map<std::pair<std::string, int>, std::uint64_t> hashes_;
};

TEST_F(DecidingKeys, ChangeTheWeights) {
  for (const Trial& trial : all_trials()) {
    check(trial);
  }
}

TEST_F(DecidingKeys, AreAllInTheTable) {
  const Keys deciding = find_keys(make_job()).deciding;
  Keys tried;
  for (const Trial& trial : all_trials()) {
    EXPECT_TRUE(deciding.contains(trial.key))
        << trial.key << " is no key that decides weights: remove its line";
    tried.insert(trial.key);
  }
  for (const std::string& key : deciding) {
    EXPECT_TRUE(tried.contains(key))
        << key << " is said to decide weights: say in this test how it is tried, or in its "
        << "description that it does not";
  }
}

}  // namespace
}  // namespace weft::train
