// What a feature whose rows are cut over W ranks costs one rank, beside what travels: packing its
// bags, unpacking those of W ranks for one slot, and adding the partial sums of its bags.
//
// One rank stands for all: its batch is packed for W cuts of rows, and what it sends to rank r is
// unpacked as if rank r had sent it. As many ranks as that need not exist. Each rank has `--batch`
// samples, whatever W is, so that ids per rank stay and cuts grow. No rank waits for another, and
// no message is sent.
//
// Bytes are those that the rank sends to all others: ids, and which bags they are of.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/at.h"
#include "weft/base/philox.h"
#include "weft/kernels/assemble_bags.h"
#include "weft/layout/id_lanes.h"
#include "weft/planner/place.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  std::vector<std::int64_t> ranks = {64, 512, 4096};
  std::vector<std::int64_t> lengths = {1, 8};
  std::int64_t batch = 512;  ///< of a rank
  std::int64_t dim = 128;
  int rounds = 9;
  int threads = 1;
  bool quick = false;
};

spec::Config make_config(std::int64_t ranks, std::int64_t dim) {
  spec::Config config;
  spec::Table& table = config.tables.emplace_back();
  table.name = "t";
  table.num_embeddings = 1000 * ranks;
  table.embedding_dim = dim;
  table.sharding = spec::Sharding::kRowWise;
  table.row_split = spec::RowSplit::kModulo;
  spec::SparseFeature& feature = config.sparse_features.emplace_back();
  feature.name = feature.column = "f";
  feature.table = table.name;
  return config;
}

/// Bags of `length` ids drawn evenly over all rows.
KeyedJaggedTensor make_batch(std::int64_t size, std::int64_t length, std::int64_t rows) {
  KeyedJaggedTensor batch{
      .keys = {"f"}, .batch = size, .values = {}, .offsets = {0}, .weights = {}};
  for (std::int64_t b = 0; b < size; ++b) {
    for (std::int64_t i = 0; i < length; ++i) {
      const auto words = philox(1, static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(i));
      const std::uint64_t word = (std::uint64_t{words[0]} << 32) | words[1];
      batch.values.push_back(static_cast<std::int64_t>(word % static_cast<std::uint64_t>(rows)));
    }
    batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
  }
  return batch;
}

/// The feature on rank 0 of `ranks`.
class CutFeature {
 public:
  CutFeature(const Options& options, std::int64_t ranks, std::int64_t length)
      : ranks_(ranks),
        length_(length),
        dim_(options.dim),
        config_(make_config(ranks, options.dim)),
        plan_(planner::make_plan(config_, ranks)),
        routing_(config_, plan_),
        paths_(config_, routing_, 0),
        packer_(paths_),
        receiver_(paths_, true, std::vector<int>(static_cast<std::size_t>(ranks))),
        batch_(make_batch(options.batch, length, config_.tables[0].num_embeddings)),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = options.threads})),
        context_{.device = device_.get(), .pool = &device_->pool()},
        asked_(routing_, 0),
        arrived_(static_cast<std::size_t>(ranks)),
        vectors_(static_cast<std::size_t>(options.batch * length * options.dim), 1.0F),
        sums_(static_cast<std::size_t>(options.batch * options.dim)) {}

  std::vector<Figure> run(int rounds) {
    std::vector<Figure> figures;
    const auto measure = [&](const std::string& name, const std::function<void()>& body) {
      Figure& figure = figures.emplace_back(make_figure(name, "us"));
      for (int round = 0; round < rounds; ++round) {
        figure.values.push_back(1e6 * median_pass_s(0.02, body));
      }
    };
    measure("pack ids", [&] { pack(); });
    list_arrived();
    measure("unpack ids", [&] { unpack(); });
    list_sums();
    measure("add partial sums", [&] { kernels::assemble_bags(context_, {&sum_, 1}); });
    Figure& sent = figures.emplace_back(make_figure("sent", "B"));
    sent.values.push_back(static_cast<double>(sent_bytes()));
    return figures;
  }

 private:
  Figure make_figure(const std::string& name, const std::string& unit) const {
    Figure figure;
    figure.name = name;
    figure.parameters = {{"ranks", std::to_string(ranks_)}, {"ids", std::to_string(length_)}};
    figure.unit = unit;
    figure.better = Better::kLower;
    return figure;
  }

  void pack() {
    const sharding::BatchView view{
        .sparse = batch_, .step = 1, .global_size = ranks_ * batch_.batch, .sample_ids = {}};
    packer_.pack(*context_.pool, view, asked_);
  }

  /// What this rank sends to each, as if it came from there.
  void list_arrived() {
    for (std::int64_t r = 0; r < ranks_; ++r) {
      arrived_[static_cast<std::size_t>(r)] = {.pieces = asked_.lane(r)};
      counts_.push_back(asked_.counts_of({r, 0}));
    }
  }

  void unpack() {
    const std::int64_t samples = ranks_ * batch_.batch;
    if (layout::packs_id_lanes(ranks_)) {
      receiver_.read_lanes(*context_.pool, samples, arrived_, served_);
    } else {
      for (std::int64_t r = 0; r < ranks_; ++r) {
        receiver_.take_counts(samples, r, {&counts_[static_cast<std::size_t>(r)], 1}, served_);
      }
    }
    receiver_.lay_out(samples, served_, blocks_);
    receiver_.unpack(*context_.pool, arrived_, served_, blocks_);
  }

  void list_sums() {
    std::int64_t next = 0;
    asked_.for_cuts(0, [&](std::int64_t /*cut*/, std::int64_t /*row_cut*/, const Range& places) {
      const sharding::AskedSlot& slot = asked_.slots[at(places.begin)];
      cuts_.push_back({.vectors = vectors_.data() + next * dim_,
                       .stride = dim_,
                       .bags = slot.rows,
                       .count = slot.vectors});
      next += slot.vectors;
    });
    sum_ = {.to = {sums_.data(), dim_, dim_},
            .bags = batch_.batch,
            .cuts = cuts_,
            .terms = asked_.bags.terms_of(asked_.bags.term_sections[0]),
            .cut_numbers = asked_.features[0].by_rule ? asked_.rule_cuts_of(0) : nullptr};
  }

  [[nodiscard]] std::int64_t sent_bytes() const {
    std::int64_t bytes = 0;
    for (std::int64_t r = 1; r < ranks_; ++r) {
      for (const comm::Piece& piece : asked_.lane(r)) {
        bytes += piece.bytes;
      }
    }
    return bytes;
  }

  std::int64_t ranks_;
  std::int64_t length_;
  std::int64_t dim_;
  spec::Config config_;
  spec::Plan plan_;
  sharding::Routing routing_;
  sharding::Paths paths_;
  sharding::IdPacker packer_;
  sharding::IdReceiver receiver_;
  KeyedJaggedTensor batch_;
  std::unique_ptr<Device> device_;
  Context context_;
  sharding::AskedIds asked_;
  sharding::ServedIds served_;
  sharding::IncomingBlocks blocks_;
  std::vector<sharding::SlotCounts> counts_;
  std::vector<comm::Lane> arrived_;
  std::vector<float> vectors_, sums_;
  std::vector<kernels::BagVectors> cuts_;
  kernels::BagAssembly sum_;
};

void run(const Options& options) {
  std::vector<Figure> figures;
  for (const std::int64_t length : options.lengths) {
    for (const std::int64_t ranks : options.ranks) {
      const std::vector<Figure> some = CutFeature(options, ranks, length).run(options.rounds);
      figures.insert(figures.end(), some.begin(), some.end());
    }
  }
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "cut", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures what a feature whose rows are cut over many ranks costs one of them");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--ranks", options.ranks, "Cuts of rows").within(2, 16384);
  arguments.add("--ids", options.lengths, "Ids in a bag").within(1, 1000);
  arguments.add("--batch", options.batch, "Samples of a rank").within(1, 65536);
  arguments.add("--dim", options.dim, "Columns").within(1, 1024);
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--threads", options.threads).within(1, 256);
  arguments.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (options.quick) {
    options.ranks = {8};
    options.batch = 16;
    options.rounds = 1;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cut_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
