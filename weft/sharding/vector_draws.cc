#include "weft/sharding/vector_draws.h"

#include <string>

#include "weft/base/at.h"
#include "weft/base/philox.h"

namespace weft::sharding {
namespace {

std::vector<std::int64_t> rows_of(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> rows;
  for (const Range& range : ranges) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace

WireDraws::WireDraws(const spec::Config& config, const Routing& routing, std::int64_t rank)
    : routing_(routing), rank_(rank), on_(config.codecs.rounding == CodecRounding::kStochastic) {
  if (!on_) {
    return;
  }
  const auto key = [&](const std::string& what, const std::string& name) {
    return random_key(config.seed, RandomPurpose::kVectorCodec, what + "/" + name);
  };
  for (const spec::SparseFeature& feature : config.sparse_features) {
    vector_keys_.push_back(key("vectors", feature.name));
    gradient_keys_.push_back(key("gradients", feature.name));
  }
  for (const spec::Table& table : config.tables) {
    row_keys_.push_back(key("rows", table.name));
    sum_keys_.push_back(key("row gradients", table.name));
  }
  hot_rows_.resize(config.tables.size());
  for (const FeatureRoute& route : routing.features) {
    hot_rows_[at(route.table)] = rows_of(route.hot);
  }
  for (const RowFetch& fetch : routing.fetches) {
    hot_rows_[at(fetch.table)] = rows_of(fetch.hot);
  }
  for (int half = 0; half < 2; ++half) {
    for (const Range& node : routing.nodes(rank)) {
      run_parts_.push_back(static_cast<std::int32_t>(node.begin));
    }
  }
}

void WireDraws::set_rows(const Slot& slot, VectorDraws& draws) const {
  if (slot.is_hot()) {
    draws.row_list = hot_rows_[at(slot.table)].data();
  } else {
    draws.rows = slot.rows;
  }
}

VectorDraws WireDraws::vectors(const SlotAddress& address,
                               std::int64_t source,
                               const InputDist& input) const {
  if (!on_) {
    return {};
  }
  const Slot& slot = routing_.slot(address);
  const IncomingBlock& block = input.block(address, source);
  const kernels::Bags bags = input.incoming().bags(block, block.lookup);
  VectorDraws draws{
      .of = slot.sequence ? VectorDraws::Of::kRows : VectorDraws::Of::kBags,
      .key = slot.sequence ? row_keys_[at(slot.table)] : vector_keys_[at(slot.feature)],
      .ids = bags.ids,
      .offsets = bags.offsets};
  set_rows(slot, draws);
  if (slot.sequence) {
    return draws;
  }
  if (source != rank_) {
    draws.places = input.served_samples(address, source);
  } else {
    draws.first_sample = routing_.own_samples(input.batch().global_size, rank_).begin;
    draws.places = routing_.in_place(address, rank_) ? nullptr : input.sent_rows(address);
  }
  return draws;
}

VectorDraws WireDraws::gradients(const SlotAddress& address, const InputDist& input) const {
  if (!on_) {
    return {};
  }
  const Slot& slot = routing_.slot(address);
  if (!slot.of_rows()) {
    VectorDraws draws = own_gradients(slot, input);
    draws.places = input.sent_gradient_rows(address);
    return draws;
  }
  VectorDraws draws{.of = VectorDraws::Of::kPartialSums,
                    .key = sum_keys_[at(slot.table)],
                    .ids = input.sent_row_ids(address),
                    .runs = input.sent_runs(address),
                    .run_parts = run_parts_.data()};
  set_rows(slot, draws);
  return draws;
}

VectorDraws WireDraws::own_gradients(const Slot& slot, const InputDist& input) const {
  if (!on_) {
    return {};
  }
  VectorDraws draws{.of = slot.sequence ? VectorDraws::Of::kPlaces : VectorDraws::Of::kSamples,
                    .key = gradient_keys_[at(slot.feature)],
                    .first_sample = routing_.own_samples(input.batch().global_size, rank_).begin};
  if (slot.sequence) {
    const JaggedView view = input.batch().sparse.feature(slot.feature);
    draws.offsets = view.offsets.data();
    draws.bags = view.batch();
  }
  return draws;
}

}  // namespace weft::sharding
