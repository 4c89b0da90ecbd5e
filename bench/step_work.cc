#include "bench/step_work.h"

#include <algorithm>
#include <span>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/cost/dense.h"
#include "weft/layout/dense_memory.h"
#include "weft/layout/tables.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kSlice = 256;  // samples whose activations stay in a second-level cache

struct Layer {
  std::string name;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  bool data_gradient = true;  // whether anything before it learns
};

/// Appends layers of these widths behind `in`.
void add_mlp(std::vector<Layer>& layers,
             const std::string& name,
             std::int64_t in,
             const std::vector<std::int64_t>& widths) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    layers.push_back({.name = name + "." + std::to_string(i), .in = in, .out = widths[i]});
    in = widths[i];
  }
}

/// The model's linear layers, as docs/models.md has them.
std::vector<Layer> dense_layers(const spec::Config& config) {
  const spec::Model& model = config.model;
  const auto features = static_cast<std::int64_t>(config.sparse_features.size());
  std::int64_t vectors = 0;  // width of all pooled vectors side by side
  for (const spec::SparseFeature& feature : config.sparse_features) {
    vectors += config.tables[at(spec::table_index(config, feature))].embedding_dim;
    if (feature.pooling == spec::Pooling::kNone) {
      fail(ErrorCode::kConfig, "feature '{}' is a sequence, whose work is not counted here",
           feature.name);
    }
  }
  if (model.type == spec::ModelKind::kDeepFm || model.projection_dim > 0 ||
      model.bottom_mlp.empty()) {
    fail(ErrorCode::kConfig,
         "the dense work of this model is not counted here: dlrm and dcnv2 with a bottom MLP and "
         "without projections are");
  }
  std::vector<Layer> layers;
  add_mlp(layers, "bottom", static_cast<std::int64_t>(config.dense_features.size()),
          model.bottom_mlp);
  layers.front().data_gradient = false;
  std::int64_t top_in = model.bottom_mlp.back();
  if (model.type == spec::ModelKind::kDlrm) {
    top_in += (features + 1) * features / 2;
  } else {
    top_in += vectors;
    for (std::int64_t l = 0; l < model.cross_layers; ++l) {
      const std::string name = "cross." + std::to_string(l);
      layers.push_back({.name = name + ".v", .in = top_in, .out = model.cross_rank, .bias = false});
      layers.push_back({.name = name + ".w", .in = model.cross_rank, .out = top_in});
    }
  }
  std::vector<std::int64_t> widths = model.top_mlp;
  widths.push_back(static_cast<std::int64_t>(config.tasks.size()));
  add_mlp(layers, "top", top_in, widths);
  return layers;
}

/// A table in the probe's memory.
struct Place {
  std::int64_t rows = 0;
  std::int64_t base = 0;
  layout::RowGeometry geometry;
  std::int64_t weight_bytes = 0;  // that a lookup reads
  std::int64_t rest_bytes = 0;    // that only an update touches
  bool interleaved = false;
};

std::vector<Place> place_tables(const spec::Config& config, std::int64_t memory_bytes) {
  double total = 0.0;
  for (const spec::Table& table : config.tables) {
    total += static_cast<double>(
        layout::row_geometry(table, table.num_embeddings, table.embedding_dim).total_bytes);
  }
  // A little less than fits, for what each table is rounded up by.
  const double kept = std::min(1.0, 0.98 * static_cast<double>(memory_bytes) / total);
  std::vector<Place> places;
  std::int64_t next = 0;
  for (const spec::Table& table : config.tables) {
    Place place;
    place.rows = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kept * static_cast<double>(table.num_embeddings)));
    place.geometry = layout::row_geometry(table, place.rows, table.embedding_dim);
    place.base = next;
    place.weight_bytes = place.geometry.weight_bytes;
    place.rest_bytes = place.geometry.row_bytes - place.weight_bytes;
    place.interleaved = layout::row_layout(table.optimizer) == layout::RowLayout::kInterleaved;
    next += (place.geometry.total_bytes + 63) / 64 * 64;
    places.push_back(place);
  }
  WEFT_CHECK(next <= memory_bytes, "tables of {} bytes in {}", next, memory_bytes);
  return places;
}

std::vector<std::int64_t>& list_of(std::vector<RowLists>& groups,
                                   std::int64_t row_bytes,
                                   std::size_t batch) {
  auto found = std::find_if(groups.begin(), groups.end(), [row_bytes](const RowLists& group) {
    return group.row_bytes == row_bytes;
  });
  if (found == groups.end()) {
    found = groups.emplace(groups.end());
    found->row_bytes = row_bytes;
  }
  found->batches.resize(std::max(found->batches.size(), batch + 1));
  return found->batches[batch];
}

/// One id of a batch: its row, and where its bag's gradient lies.
struct Entry {
  std::int64_t row = 0;
  std::int64_t gradient = 0;
};

/// The entries of one batch by table, features in their order.
std::vector<std::vector<Entry>> entries_by_table(const spec::Config& config,
                                                 const data::Batch& batch,
                                                 const std::vector<Place>& places) {
  std::vector<std::vector<Entry>> tables(places.size());
  std::int64_t gradient = 0;
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const std::size_t table = at(spec::table_index(config, config.sparse_features[f]));
    const JaggedView bags = batch.sparse.feature(static_cast<std::int64_t>(f));
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      for (const std::int64_t id : bags.bag(b)) {
        tables[table].push_back({id % places[table].rows, gradient});
      }
      gradient += config.tables[table].embedding_dim * 4;
    }
  }
  return tables;
}

void add_lists(StepWork& work,
               const Place& place,
               std::int64_t dim,
               std::vector<Entry>& entries,
               std::size_t batch) {
  const auto weights = [&](std::int64_t row) {
    return place.base + place.geometry.weight_offset + row * place.geometry.weight_stride;
  };
  auto& lookups = list_of(work.lookups, place.weight_bytes, batch);
  for (const Entry& entry : entries) {
    lookups.push_back(weights(entry.row));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.row < b.row; });
  auto& gradients = list_of(work.gradients, dim * 4, batch);
  std::int64_t last = -1;
  for (const Entry& entry : entries) {
    gradients.push_back(entry.gradient);
    if (entry.row == last) {
      continue;
    }
    last = entry.row;
    const std::int64_t beside = place.interleaved ? place.rest_bytes : 0;
    list_of(work.updates, place.weight_bytes + beside, batch).push_back(weights(entry.row));
    if (!place.interleaved && place.rest_bytes > 0) {
      list_of(work.updates, place.rest_bytes, batch)
          .push_back(place.base + place.geometry.state_offset +
                     entry.row * place.geometry.rest_stride);
    }
  }
}

}  // namespace

double RowLists::rows() const {
  double sum = 0.0;
  for (const auto& batch : batches) {
    sum += static_cast<double>(batch.size());
  }
  return sum / static_cast<double>(batches.size());
}

std::span<const std::int64_t> RowLists::next() {
  return batches[next_++ % batches.size()];
}

std::vector<DenseProduct> dense_products(const spec::Config& config, std::int64_t rows) {
  const DType type =
      config.model.compute == spec::Compute::kBf16 ? DType::kBFloat16 : DType::kFloat32;
  std::vector<DenseProduct> products;
  for (const Layer& layer : dense_layers(config)) {
    products.push_back({layer.name, "forward", {rows, layer.out, layer.in, type, type}});
    if (layer.data_gradient) {
      products.push_back({layer.name, "data", {rows, layer.in, layer.out, type, type}});
    }
    products.push_back({layer.name, "weight", {layer.out, layer.in, rows, type, DType::kFloat32}});
  }
  return products;
}

std::int64_t dense_parameters(const spec::Config& config) {
  std::int64_t count = 0;
  for (const Layer& layer : dense_layers(config)) {
    count += layer.in * layer.out + (layer.bias ? layer.out : 0);
  }
  return count;
}

StepWork step_work(const spec::Config& config,
                   const std::vector<data::Batch>& batches,
                   std::int64_t memory_bytes) {
  const std::vector<Place> places = place_tables(config, memory_bytes);
  StepWork work;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const data::Batch& batch = batches[b];
    auto tables = entries_by_table(config, batch, places);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      add_lists(work, places[t], config.tables[t].embedding_dim, tables[t], b);
    }
    const double share = 1.0 / static_cast<double>(batches.size());
    const auto samples = static_cast<double>(batch.size());
    work.samples += share * samples;
    work.ids += share * static_cast<double>(batch.sparse.values.size());
    work.sparse_bytes +=
        share * 8.0 * static_cast<double>(batch.sparse.values.size() + batch.sparse.offsets.size());
    work.input_bytes +=
        share * 4.0 *
        static_cast<double>(batch.dense.size() + batch.labels.size() + batch.label_weights.size());
    for (const spec::SparseFeature& feature : config.sparse_features) {
      work.vector_bytes +=
          share * samples * 4.0 *
          static_cast<double>(config.tables[at(spec::table_index(config, feature))].embedding_dim);
    }
  }
  work.dense_parameters = static_cast<double>(dense_parameters(config));
  work.dense_state = static_cast<double>(layout::dense_states(config.dense_optimizer.type).size());
  return work;
}

namespace {

/// Seconds of the dense model's products over the rank's parts.
struct DenseLimit {
  double inputs = 0.0;   ///< forward, and gradients of inputs
  double weights = 0.0;  ///< gradients of weights
};

DenseLimit dense_limit(Limits& limits,
                       const spec::Config& config,
                       const RankWork& rank,
                       std::map<GemmShape, double>& shapes) {
  const auto rate = [&](const GemmShape& shape) {
    const auto found = shapes.find(shape);
    return found != shapes.end() ? found->second : shapes[shape] = limits.gemm_flops_per_s(shape);
  };
  const auto whole = dense_products(config, rank.samples_per_part);
  const auto slices = dense_products(config, std::min(kSlice, rank.samples_per_part));
  DenseLimit seconds;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    double& of_pass = whole[i].pass == "weight" ? seconds.weights : seconds.inputs;
    of_pass += static_cast<double>(rank.parts) * whole[i].shape.flops() /
               std::max(rate(whole[i].shape), rate(slices[i].shape));
  }
  return seconds;
}

}  // namespace

PartLimits part_limits(Limits& limits,
                       const spec::Config& config,
                       StepWork& work,
                       const RankWork& rank,
                       std::map<GemmShape, double>& shapes) {
  PartLimits seconds{};
  const auto part = [&seconds](StepPart name) -> double& {
    return seconds[static_cast<std::size_t>(name)];
  };
  const double share = 1.0 / static_cast<double>(rank.ranks);
  const double moved = share * (1.0 - share);  // of all ranks' work, by one to others
  const auto copy = [&](double bytes) {
    return bytes == 0.0 ? 0.0 : bytes / limits.copy_bytes_per_s(static_cast<std::int64_t>(bytes));
  };
  const auto rows = [&](std::vector<RowLists>& groups, RowAccess access) {
    double time = 0.0;
    for (RowLists& group : groups) {
      const NextRows next = [&limits, &group] {
        limits.forget_caches();
        return group.next();
      };
      time += share * group.rows() / limits.rows_per_s(next, group.row_bytes, access);
    }
    return time;
  };
  part(StepPart::kExchangeIds) = copy(2.0 * moved * work.sparse_bytes);
  part(StepPart::kLoad) = copy(2.0 * share * work.input_bytes);
  part(StepPart::kLookup) =
      rows(work.lookups, RowAccess::kGather) + copy(2.0 * share * work.vector_bytes) / 2.0;
  part(StepPart::kOutputDist) = copy(2.0 * moved * work.vector_bytes);
  const DenseLimit dense = dense_limit(limits, config, rank, shapes);
  part(StepPart::kForwardBackward) = dense.inputs;
  part(StepPart::kWeightGradients) = dense.weights;
  part(StepPart::kReduce) = copy(2.0 * 4.0 * work.dense_parameters);
  part(StepPart::kCoalesce) = copy(2.0 * share * 8.0 * work.ids);
  part(StepPart::kGradDist) = part(StepPart::kOutputDist);
  part(StepPart::kUpdateRows) =
      rows(work.gradients, RowAccess::kGather) + rows(work.updates, RowAccess::kGatherScatter);
  part(StepPart::kUpdateDense) = limits.update_s(
      static_cast<std::int64_t>(4.0 * (1.0 + work.dense_state) * work.dense_parameters),
      static_cast<std::int64_t>(4.0 * work.dense_parameters));
  return seconds;
}

}  // namespace weft::bench
