// The sparse operations: each goes to its form for the kind of the context's device.

#include "weft/kernels/assemble_bags.h"
#include "weft/kernels/cache_slots.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/dispatch.h"
#include "weft/kernels/distinct_rows.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/initial_values.h"
#include "weft/kernels/row_average.h"
#include "weft/kernels/row_changes.h"
#include "weft/kernels/row_copies.h"
#include "weft/kernels/row_gradients.h"
#include "weft/kernels/row_moves.h"
#include "weft/kernels/row_statistics.h"
#include "weft/kernels/slice_codes.h"
#include "weft/kernels/sparse_update.h"
#include "weft/kernels/term_sums.h"

namespace weft::kernels {

void embedding_bag(Context& ctx, std::span<const BagLookup> lookups) {
  on_device(
      ctx, [&] { cpu::embedding_bag(ctx, lookups); }, [&] { cuda::embedding_bag(ctx, lookups); });
}

void update_rows(Context& ctx, std::span<const SparseUpdate> updates) {
  on_device(ctx, [&] { cpu::update_rows(ctx, updates); }, [&] { cuda::update_rows(ctx, updates); });
}

void gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs) {
  on_device(
      ctx, [&] { cpu::gradient_block_squares(ctx, jobs); },
      [&] { cuda::gradient_block_squares(ctx, jobs); });
}

void update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs) {
  on_device(
      ctx, [&] { cpu::update_rows_with_statistic(ctx, jobs); },
      [&] { cuda::update_rows_with_statistic(ctx, jobs); });
}

void row_block_squares(Context& ctx, std::span<const RowSquares> jobs) {
  on_device(
      ctx, [&] { cpu::row_block_squares(ctx, jobs); }, [&] { cuda::row_block_squares(ctx, jobs); });
}

void store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs) {
  on_device(
      ctx, [&] { cpu::store_scaled_rows(ctx, jobs); }, [&] { cuda::store_scaled_rows(ctx, jobs); });
}

void sum_gradients(Context& ctx, std::span<const GradientSum> jobs) {
  on_device(ctx, [&] { cpu::sum_gradients(ctx, jobs); }, [&] { cuda::sum_gradients(ctx, jobs); });
}

void cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs) {
  on_device(
      ctx, [&] { cpu::cut_partial_sums(ctx, jobs); }, [&] { cuda::cut_partial_sums(ctx, jobs); });
}

void add_partial_sums(Context& ctx, std::span<const PartialSum> jobs) {
  on_device(
      ctx, [&] { cpu::add_partial_sums(ctx, jobs); }, [&] { cuda::add_partial_sums(ctx, jobs); });
}

void coalesce(Context& ctx, std::span<const CoalesceJob> jobs) {
  on_device(ctx, [&] { cpu::coalesce(ctx, jobs); }, [&] { cuda::coalesce(ctx, jobs); });
}

void count_up(Context& ctx, std::span<const CountUp> jobs) {
  on_device(ctx, [&] { cpu::count_up(ctx, jobs); }, [&] { cuda::count_up(ctx, jobs); });
}

void set_initial_rows(Context& ctx, std::span<const InitialRows> jobs) {
  on_device(
      ctx, [&] { cpu::set_initial_rows(ctx, jobs); }, [&] { cuda::set_initial_rows(ctx, jobs); });
}

void sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs) {
  on_device(ctx, [&] { cpu::sum_row_blocks(ctx, jobs); }, [&] { cuda::sum_row_blocks(ctx, jobs); });
}

void copy_from_rows(Context& ctx, std::span<const RowCopy> jobs) {
  on_device(ctx, [&] { cpu::copy_from_rows(ctx, jobs); }, [&] { cuda::copy_from_rows(ctx, jobs); });
}

void copy_to_rows(Context& ctx, std::span<const RowCopy> jobs) {
  on_device(ctx, [&] { cpu::copy_to_rows(ctx, jobs); }, [&] { cuda::copy_to_rows(ctx, jobs); });
}

void pack_rows(Context& ctx, std::span<const RowMove> jobs) {
  on_device(ctx, [&] { cpu::pack_rows(ctx, jobs); }, [&] { cuda::pack_rows(ctx, jobs); });
}

void unpack_rows(Context& ctx, std::span<const RowMove> jobs) {
  on_device(ctx, [&] { cpu::unpack_rows(ctx, jobs); }, [&] { cuda::unpack_rows(ctx, jobs); });
}

void encode(Context& ctx, std::span<const EncodeJob> jobs) {
  on_device(ctx, [&] { cpu::encode(ctx, jobs); }, [&] { cuda::encode(ctx, jobs); });
}

void decode(Context& ctx, std::span<const DecodeJob> jobs) {
  on_device(ctx, [&] { cpu::decode(ctx, jobs); }, [&] { cuda::decode(ctx, jobs); });
}

void assemble_bags(Context& ctx, std::span<const BagAssembly> jobs) {
  on_device(ctx, [&] { cpu::assemble_bags(ctx, jobs); }, [&] { cuda::assemble_bags(ctx, jobs); });
}

void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs) {
  on_device(
      ctx, [&] { cpu::encode_row_changes(ctx, jobs); },
      [&] { cuda::encode_row_changes(ctx, jobs); });
}

void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs) {
  on_device(
      ctx, [&] { cpu::average_row_changes(ctx, jobs); },
      [&] { cuda::average_row_changes(ctx, jobs); });
}

void add_row_means(Context& ctx, std::span<const RowChanges> jobs) {
  on_device(ctx, [&] { cpu::add_row_means(ctx, jobs); }, [&] { cuda::add_row_means(ctx, jobs); });
}

void take_row_values(Context& ctx, std::span<const RowChanges> jobs) {
  on_device(
      ctx, [&] { cpu::take_row_values(ctx, jobs); }, [&] { cuda::take_row_values(ctx, jobs); });
}

void encode_slices(Context& ctx, std::span<const SliceEncode> jobs) {
  on_device(ctx, [&] { cpu::encode_slices(ctx, jobs); }, [&] { cuda::encode_slices(ctx, jobs); });
}

void sum_terms(Context& ctx, std::span<const TermSum> jobs) {
  on_device(ctx, [&] { cpu::sum_terms(ctx, jobs); }, [&] { cuda::sum_terms(ctx, jobs); });
}

void average_rows(Context& ctx, std::span<const RowAverage> jobs) {
  on_device(ctx, [&] { cpu::average_rows(ctx, jobs); }, [&] { cuda::average_rows(ctx, jobs); });
}

void find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs) {
  on_device(
      ctx, [&] { cpu::find_distinct_rows(ctx, jobs); },
      [&] { cuda::find_distinct_rows(ctx, jobs); });
}

void slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs) {
  on_device(
      ctx, [&] { cpu::slots_of_places(ctx, jobs); }, [&] { cuda::slots_of_places(ctx, jobs); });
}

void slots_of_rows(Context& ctx, std::span<const RowSlots> jobs) {
  on_device(ctx, [&] { cpu::slots_of_rows(ctx, jobs); }, [&] { cuda::slots_of_rows(ctx, jobs); });
}

void clear_cache(Context& ctx, std::span<const CacheClear> jobs) {
  on_device(ctx, [&] { cpu::clear_cache(ctx, jobs); }, [&] { cuda::clear_cache(ctx, jobs); });
}

void probe_cache(Context& ctx, std::span<const CacheProbe> jobs) {
  on_device(ctx, [&] { cpu::probe_cache(ctx, jobs); }, [&] { cuda::probe_cache(ctx, jobs); });
}

void take_cached_rows(Context& ctx, std::span<const CacheTake> jobs) {
  on_device(
      ctx, [&] { cpu::take_cached_rows(ctx, jobs); }, [&] { cuda::take_cached_rows(ctx, jobs); });
}

void place_rows(Context& ctx, std::span<const CachePlace> jobs) {
  on_device(ctx, [&] { cpu::place_rows(ctx, jobs); }, [&] { cuda::place_rows(ctx, jobs); });
}

void mark_slots(Context& ctx, std::span<const CacheMark> jobs) {
  on_device(ctx, [&] { cpu::mark_slots(ctx, jobs); }, [&] { cuda::mark_slots(ctx, jobs); });
}

void find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs) {
  on_device(
      ctx, [&] { cpu::find_changed_slots(ctx, jobs); },
      [&] { cuda::find_changed_slots(ctx, jobs); });
}

}  // namespace weft::kernels
