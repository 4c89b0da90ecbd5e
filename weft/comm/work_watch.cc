#include "weft/comm/work_watch.h"

#include <algorithm>
#include <future>
#include <string>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/log.h"

namespace weft::comm {

using std::chrono::duration;
using std::chrono::milliseconds;

WorkWatch::WorkWatch(Communicator& comm, const WorkProgress& progress)
    : WorkWatch(comm, progress, Options()) {
}

WorkWatch::WorkWatch(Communicator& comm, const WorkProgress& progress, const Options& options)
    : comm_(comm),
      progress_(progress),
      options_(options),
      activity_(comm.activity_log(), comm.name(), comm.world_rank(comm.rank())),
      begin_(Clock::now()),
      moved_(begin_),
      moves_(progress.moves()) {
  activity_.begin_work(progress);
}

milliseconds WorkWatch::interval(const Communicator& comm) {
  const duration<double> part(comm.timeout_s() / 8);
  return std::clamp(std::chrono::duration_cast<milliseconds>(part), milliseconds(1),
                    milliseconds(1000));
}

void WorkWatch::look() {
  comm_.check();
  const Clock::time_point now = Clock::now();
  if (const std::uint64_t moves = progress_.moves(); moves != moves_) {
    moves_ = moves;
    moved_ = now;
  }
  if (duration<double>(now - moved_).count() > comm_.timeout_s()) {
    give_up();
  }
  comm_.say_alive();
  note(now);
}

void WorkWatch::give_up() {
  const int rank = comm_.world_rank(comm_.rank());
  const std::string amounts = progress_.how_much();
  const Error error(
      ErrorCode::kTimeout,
      fmt::format(
          "rank {} has been {} and nothing has moved for {:.1f} s{}{}; look at the disk and "
          "the file system of its host, or raise train.timeout_s if they are that slow",
          rank, progress_.what(), comm_.timeout_s(), amounts.empty() ? "" : ", at ", amounts),
      rank);
  comm_.abort(error);
  comm_.check();  // where the world has another error, that one
  throw Error(error);
}

void WorkWatch::note(Clock::time_point now) {
  const duration<double> passed = now - begin_;
  const auto due = static_cast<std::int64_t>(passed / options_.note_every);
  if (due <= notes_) {
    return;
  }
  notes_ = due;
  const std::string amounts = progress_.how_much();
  log_info("rank {} has been {} for {:.0f} s{}{}", comm_.world_rank(comm_.rank()), progress_.what(),
           passed.count(), amounts.empty() ? "" : ", ", amounts);
}

void run_watched(Communicator& comm, const std::function<void(WorkProgress& progress)>& work) {
  WorkProgress progress;
  auto result = std::async(std::launch::async, [&] { work(progress); });
  WorkWatch watch(comm, progress);
  while (result.wait_for(watch.interval()) != std::future_status::ready) {
    watch.look();  // throws: then the end of `result` waits for the work
  }
  result.get();
}

}  // namespace weft::comm
