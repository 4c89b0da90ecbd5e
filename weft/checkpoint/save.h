/// Private to checkpoint/: one save, as one rank does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/copied_blocks.h"
#include "weft/checkpoint/linked_rows.h"
#include "weft/checkpoint/rank_table.h"
#include "weft/checkpoint/save_plan.h"
#include "weft/tensor/row_cut.h"

namespace weft::checkpoint {

/// prepare(), perhaps cut(), write(), finish(): all collective. With cut() state may change once it
/// has returned, and the last two run on any thread. A call that throws removes what was written.
class Save {
 public:
  /// All outlive it.
  Save(comm::Communicator& comm,
       Context& ctx,
       const SaveOptions& options,
       std::span<const StateSource* const> sources);

  /// Rank 0 makes the directory and decides which rows are saved.
  void prepare();

  /// After prepare(): whether the blocks of every rank fit into options.copy_bytes.
  [[nodiscard]] bool can_cut() const { return plan_.copies_blocks; }

  /// Copies blocks and cuts rows off, which options.increments must have. `room` outlives the cuts.
  void cut(CopyRoom& room);

  /// Writes and makes the checkpoint the newest.
  void write();

  /// Says where it is, counts changes anew, and names it in the increments.
  std::string finish();

  /// Ends the cuts, and lets updates go that wait for room. May be called again.
  void end_cuts();

 private:
  [[nodiscard]] bool is_first() const { return comm_.rank() == 0; }

  [[nodiscard]] StateRows rows_to_save() const {
    return plan_.has_parent ? StateRows::kChanged : StateRows::kExisting;
  }

  template <typename Phase>
  void discarding(const Phase& phase);
  Gathered begin();
  void decide(const Gathered& gathered);
  Gathered write_own();
  void list_unwritten_rows();
  void write_segments(RankTable& table, WorkProgress& progress);
  void complete(const Gathered& tables);
  void commit(const Gathered& tables);
  void check_segments(const SegmentSet& set);

  comm::Communicator& comm_;
  Context& ctx_;
  const SaveOptions& options_;
  io::FileSystem& files_;
  SaveSources sources_;
  std::optional<LinkedRows> links_;  ///< from begin() on; of a save with a cut, until they are made
  std::vector<std::vector<std::int64_t>> lists_;  ///< of rows that are written, without a cut
  std::optional<CopiedBlocks> copied_;            ///< of a save with a cut
  std::vector<std::unique_ptr<RowCut>> cuts_;
  CopyRoom* room_ = nullptr;  ///< of the cuts
  std::optional<Folder> own_folder_;
  Folder* folder_;
  SavePlan plan_;
  std::string final_;
  std::uint64_t id_ = 0;
  SavedRows saved_;
};

}  // namespace weft::checkpoint
