#include "weft/checkpoint/background_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "weft/base/error.h"
#include "weft/checkpoint/save.h"

namespace weft::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

/// Room for rows that there is in any case.
constexpr std::int64_t kLeastRoom = std::int64_t{1} << 20;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

/// All that outlives the call which began the save. Members are made in order, and ended backwards.
class BackgroundSave::Run {
 public:
  Run(comm::Communicator& world,
      Device& device,
      SaveOptions with,
      std::vector<const StateSource*> all)
      : comm(world),
        context{.device = &device},
        options(std::move(with)),
        sources(std::move(all)),
        room(std::max(options.copy_bytes - bytes_of_blocks(SaveSources(sources)), kLeastRoom)),
        save(comm, context, options, sources) {}

  /// Nobody waits for room that nobody gives.
  ~Run() { save.end_cuts(); }

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  comm::Communicator& comm;
  Context context;
  const SaveOptions options;
  const std::vector<const StateSource*> sources;
  const Clock::time_point begin = Clock::now();
  CopyRoom room;
  Save save;
};

BackgroundSave::BackgroundSave(comm::Communicator& comm,
                               Device& device,
                               SaveOptions options,
                               std::vector<const StateSource*> sources) {
  WEFT_CHECK(options.increments != nullptr, "a background save without increments");
  run_ = std::make_unique<Run>(comm, device, std::move(options), std::move(sources));
  run_->save.prepare();
  if (run_->save.can_cut()) {
    run_->save.cut(run_->room);
    thread_ = std::jthread([this] { run(); });
  } else {
    run_->save.write();
    where_ = run_->save.finish();
    costs_.total_s = since(run_->begin);
  }
  costs_.cut_s = since(run_->begin);
}

BackgroundSave::~BackgroundSave() = default;

void BackgroundSave::run() {
  Run& run = *run_;
  try {
    run.save.write();
    run.save.end_cuts();
    where_ = run.save.finish();
  } catch (const Error&) {  // on all ranks, or the communicator's
    error_ = std::current_exception();
  } catch (const std::exception& error) {  // here alone
    run.comm.abort(Error(ErrorCode::kInternal, error.what(), run.comm.world_rank(run.comm.rank())));
    error_ = std::current_exception();
  }
  run.save.end_cuts();
  costs_.total_s = since(run.begin);
}

std::string BackgroundSave::finish() {
  if (thread_.joinable()) {
    thread_.join();
  }
  costs_.updates_s = run_->room.seconds();
  costs_.copy_bytes = run_->room.peak();
  if (error_) {
    std::rethrow_exception(error_);
  }
  return where_;
}

}  // namespace weft::checkpoint
