/// Private to train/: one rank's run of a job (job.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/checkpoint/background_save.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/communicator.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/kernels/target.h"
#include "weft/spec/plan.h"
#include "weft/train/checkpoint_age.h"
#include "weft/train/checkpoint_folder.h"
#include "weft/train/data_identity.h"
#include "weft/train/job.h"
#include "weft/train/plan_choice.h"
#include "weft/train/process_memory.h"
#include "weft/train/records.h"
#include "weft/train/resume_plan.h"
#include "weft/train/trainer.h"

namespace weft::train {

// Names in a checkpoint's manifest.
inline constexpr const char* kVocabularyBlob = "vocabularies";
inline constexpr const char* kResidualLayout = "dense_residuals";
inline constexpr const char* kSyncResidualLayout = "sync_residuals";
inline constexpr const char* kSkipsOwed = "skipped_steps_owed";

/// One rank's run: what has been opened and made, in the order in which it is.
class Job {
 public:
  using Clock = std::chrono::steady_clock;

  Job(comm::Communicator& launched, const JobOptions& options);

  Summary train();
  Summary eval();

 private:
  [[nodiscard]] bool first() const { return world().rank() == 0; }

  /// From the plan on its ranks are positions of the mesh.
  [[nodiscard]] comm::Communicator& world() const {
    return by_position_ ? *by_position_ : launched_;
  }

  void check_skipped() const;
  void check_resume();
  void warn_of_another_config() const;
  void say_which_groups() const;
  void say_what_carries();
  void explain_lost_ranks() const;
  void warn_of_an_end_between_syncs() const;
  void advise_on_parts() const;
  void check_clustering() const;
  void advise_on_cuts() const;
  void open_vocabularies(data::Source& train);
  void look_at_data(const std::function<void(WorkProgress&)>& work);
  void agree_on_data(std::uint64_t fingerprint);
  void resume_data(data::Source& train);
  void explain_no_steps() const;
  void make_engine();
  void load();
  [[nodiscard]] std::string saved_residual_layout(const char* key) const;
  void warn_of_residuals() const;
  void convert_moments();
  void restore_figures(Trainer& trainer) const;
  [[nodiscard]] std::unique_ptr<data::Source> open_source(data::Split split) const;
  bool save(const Trainer& trainer, SaveKind kind);
  [[nodiscard]] checkpoint::SaveOptions save_options(const Trainer& trainer) const;
  bool end_open_save(SaveKind next);
  bool end_save(std::int64_t step,
                SaveKind kind,
                const std::string& note,
                const std::optional<Error>& failed);
  void begin_checkpoint_age();
  std::optional<EvalFigures> evaluate();
  void finish(Summary& summary, Clock::time_point start);
  void sum_up_ranks(Summary& summary);
  void prepare_records();
  void prepare_trace();
  ProgressSink progress();
  void say(Phase phase) const;

  /// Whether this job has a checkpoint of its own. A rank knows it at the end of the save only, and
  /// by then the others may have published it.
  enum class Saved : std::uint8_t { kNothing, kMaybe, kSomething };

  comm::Communicator& launched_;
  std::unique_ptr<comm::Communicator> by_position_;  // where positions of the mesh are not ranks
  JobOptions options_;                               // resume: the checkpoint itself
  spec::Config config_;
  std::string config_yaml_;  // as resolved, once all ranks have agreed on it
  CheckpointFolder checkpoints_;
  // Shared with the text of a loss, which another thread makes when this job may be gone.
  std::shared_ptr<std::atomic<Saved>> has_saved_ =
      std::make_shared<std::atomic<Saved>>(Saved::kNothing);
  std::unique_ptr<Device> device_, host_;
  Context host_context_;
  kernels::Target target_{};
  std::optional<checkpoint::Manifest> manifest_;
  std::optional<SavedJob> saved_;  // with manifest_
  spec::Plan plan_;
  Reading reading_;  // of a training
  data::Vocabularies vocabularies_;
  std::string vocabulary_bytes_;
  std::int64_t program_bytes_ = rss_bytes();
  std::optional<TraceSession> trace_;
  std::optional<Records> records_;  // of a training, on rank 0
  std::optional<CheckpointAge> checkpoint_age_;
  std::unique_ptr<Engine> engine_;
  checkpoint::Increments increments_;  // of the engine's rows

  std::unique_ptr<comm::Communicator> save_comm_;          // of saves beside steps
  std::unique_ptr<checkpoint::BackgroundSave> open_save_;  // ends before all that it reads
  std::int64_t open_save_step_ = 0;
  Saved saved_before_open_ = Saved::kNothing;
};

}  // namespace weft::train
