#include "weft/train/checkpoint_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "weft/base/log.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/train/agreement.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

bool lies_in(const std::string& checkpoint, const std::string& directory) {
  fs::path path(checkpoint);
  if (path.filename().empty()) {
    path = path.parent_path();  // a slash at the end
  }
  std::error_code unreadable;
  return fs::equivalent(path.has_parent_path() ? path.parent_path() : ".", directory, unreadable);
}

/// Takes the lock; with `waits` tries again while another job has it.
std::unique_ptr<checkpoint::Folder> take_folder(const CheckpointFolderOptions& options,
                                                bool waits,
                                                WorkProgress& progress) {
  using std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const checkpoint::FolderOptions taken{.directory = options.directory,
                                        .timeout_s = options.timeout_s,
                                        .on_wait = [&progress] { progress.move(); }};
  const auto begin = steady_clock::now();
  for (bool said = false;; said = true) {
    try {
      return std::make_unique<checkpoint::Folder>(taken);
    } catch (const checkpoint::FolderBusy& busy) {
      if (!waits || steady_clock::now() - begin > Seconds(options.timeout_s)) {
        throw;
      }
      if (!said) {
        log_info("resume: waiting for up to {:g} s (train.timeout_s), because {}",
                 options.timeout_s, busy.what());
      }
    }
    taken.on_wait();
    std::this_thread::sleep_for(Seconds(std::min(options.timeout_s / 10, 1.0)));
  }
}

/// On rank 0.
void open_here(const CheckpointFolderOptions& options,
               WorkProgress& progress,
               CheckpointFolder& out) {
  const bool is_auto = !options.directory.empty() && options.resume == kResumeAuto;
  if (!options.directory.empty()) {
    out.folder = take_folder(options, is_auto, progress);
  }
  if (is_auto) {
    out.resume = out.folder->newest();
    if (out.resume.empty()) {
      log_info("resume: there is no checkpoint in {}, so a new job starts", options.directory);
    }
  } else if (!options.resume.empty()) {
    out.resume = checkpoint::find_checkpoint(options.resume);
  }
  if (out.folder == nullptr) {
    return;
  }
  if (out.resume.empty()) {
    out.folder->start_job();
  } else {
    out.folder->resume_job(out.resume, [&progress] { progress.move(); });
    out.has_resumed = lies_in(out.resume, options.directory);
  }
}

}  // namespace

CheckpointFolder open_checkpoints(comm::Communicator& world,
                                  Context& ctx,
                                  const CheckpointFolderOptions& options) {
  CheckpointFolder out;
  if (options.directory.empty() && options.resume.empty()) {
    return out;
  }
  checkpoint::agree(world, ctx, [&](WorkProgress& progress) {
    if (world.rank() == 0) {
      progress.begin({.activity = "opening", .place = fmt::format("'{}'", options.directory)});
      open_here(options, progress, out);
    }
  });
  world.share(ctx, out.resume, 0);
  std::string has_resumed = out.has_resumed ? "1" : "0";
  world.share(ctx, has_resumed, 0);
  out.has_resumed = has_resumed == "1";
  return out;
}

}  // namespace weft::train
