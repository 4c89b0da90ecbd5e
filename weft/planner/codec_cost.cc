// What the codecs take at the sample: vectors that come are decoded to where they are needed,
// gradients encoded from where they lie. What a rank has for itself passes through both in its
// matrices, empty bags too (docs/codecs.md). The other ends are in ShardLoad.
#include <map>

#include "weft/planner/estimate.h"
#include "weft/planner/shard_loads.h"

namespace weft::planner {

void Estimator::add_codecs(SampleSeconds& seconds,
                           const FeatureUse& use,
                           const spec::TablePlan& plan,
                           bool cut) const {
  const spec::Table& table = shape_.config.tables[static_cast<std::size_t>(use.table)];
  const double ids = shape_.samples * use.length;
  const double in_matrix = use.pooled ? shape_.samples : ids;
  const auto hot_use = hot_uses_.of(use.table, plan.hot);
  const FeatureUse& tail = hot_use ? of_feature(hot_use->tail, use.feature) : use;
  OncePerRows vectors_of(tail, [&](const RowSet& rows) {
    const double share = share_of_rows(tail, rows, table.num_embeddings);
    return use.pooled ? bags_of(use, share, shape_.samples) : ids * share;
  });
  for (const bool forward : {true, false}) {
    const CodecFormat format =
        forward ? shape_.config.codecs.forward : shape_.config.codecs.backward;
    if (format == CodecFormat::kFp32) {
      continue;
    }
    // Partial sums of cut rows come from the own shard as from others; gradients of pooled bags are
    // read in the matrix by it. Hot rows, which every rank has, get both alike.
    const bool in_place = !cut || (use.pooled && !forward);
    const bool own_in_place = in_place && !hot_use;
    double all = 0.0;
    if (hot_use) {
      const FeatureUse& hot = of_feature(hot_use->hot, use.feature);
      const double vectors = shape_.samples * (use.pooled ? hot.present : hot.length);
      all += round_s(format, table.embedding_dim, in_place ? in_matrix : vectors);
    }
    std::map<std::int64_t, double> own;  // by rank, more than the others'
    for (const spec::Shard& shard : plan.shards) {
      const std::int64_t cols = shard.cols.size();
      const double vectors = vectors_of(shard.rows);
      const double travelled =
          forward ? decode_s(format, cols, vectors) : encode_s(format, cols, vectors);
      all += travelled;
      if (own_in_place) {
        own[shard.rank] += round_s(format, cols, in_matrix) - travelled;
      }
    }
    for (auto& [rank, more] : own) {
      more += all;
    }
    add_by_rank(forward ? seconds.output_dist : seconds.grad_dist, all, own);
  }
}

}  // namespace weft::planner
