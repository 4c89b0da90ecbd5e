#include "weft/train/trace_session.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/clock.h"
#include "weft/comm/work_watch.h"
#include "weft/spec/changed.h"
#include "weft/tensor/memory_use.h"
#include "weft/trace/chrome.h"
#include "weft/train/agreement.h"
#include "weft/train/record_files.h"
#include "weft/train/tier_figures.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

/// What tables whose rows are not all in memory have done so far on this rank.
void sample_tiers(trace::Track& track, const Engine& engine) {
  const TierFigures figures = own_tier_figures(engine.config(), engine.embeddings());
  if (figures.empty()) {
    return;
  }
  storage::TierCounts sum;
  for (const TableTier& one : figures.tables) {
    sum.asked += one.counts.asked;
    sum.hits += one.counts.hits;
    sum.read += one.counts.read;
    sum.made += one.counts.made;
    sum.late += one.counts.late;
    sum.written += one.counts.written;
  }
  const auto sample = [&](const char* name, std::int64_t value) {
    track.sample(name, static_cast<double>(value));
  };
  sample("rows of tiers asked for", sum.asked);
  sample("rows of tiers hit", sum.hits);
  sample("rows of tiers read", sum.read);
  sample("rows of tiers made", sum.made);
  sample("rows of tiers late", sum.late);
  sample("rows of tiers written back", sum.written);
  sample("rows of disks stored", figures.disks.rows_stored);
  sample("rows of disks moved", figures.disks.rows_moved);
  sample("bytes of disks read", figures.disks.bytes_read);
}

/// Files of an earlier trace of more ranks.
void remove_others(const fs::path& folder, int ranks) {
  std::error_code error;
  for (int rank = ranks; fs::remove(folder / trace::chrome_file_name(rank), error); ++rank) {
  }
}

}  // namespace

TraceSession::TraceSession(const TraceOptions& options, std::int64_t first_step)
    : folder_(options.folder), steps_(options.steps) {
  if (steps_.empty()) {
    steps_ = {first_step + kDefaultSteps.begin, first_step + kDefaultSteps.end};
  }
  make_record_folder(folder_, "--trace");
}

void TraceSession::before_step(std::int64_t step, Engine& engine) {
  if (written_) {
    return;
  }
  if (recorder_.on() && step >= steps_.end) {
    write(engine);
  } else if (!recorder_.on() && step >= steps_.begin && step < steps_.end) {
    engine.drain();  // a recorder begins and ends while nothing runs
    steps_.begin = step;
    reads_before_ = engine.embeddings().reads();
    begin_ns_ = trace::now_ns();
    recorder_.start();
  }
  if (recorder_.on()) {
    sample(engine);
  }
  last_step_ = step;
}

void TraceSession::finish(Engine& engine) {
  if (written_) {
    if (lost_) {
      write_file(engine.control_comm());
    }
    return;
  }
  if (recorder_.on()) {
    write(engine);
  } else if (engine.control_comm().rank() == 0) {
    log_warning("--trace {}: no step was recorded; the job's last step is {}, set --trace-steps",
                folder_, last_step_);
  }
}

void TraceSession::write(Engine& engine) {
  engine.drain();
  recorder_.stop();
  written_ = true;
  engine.run_stage([&](Context& ctx) { complete(engine, ctx); });
  write_file(engine.control_comm());
}

/// What changes from step to step, as counters beside the spans.
void TraceSession::sample(Engine& engine) {
  std::int64_t rows = 0;
  for (const sharding::TableReads& table : engine.embeddings().reads()) {
    rows += table.rows;
  }
  const CodecReport report = engine.codec_report();
  trace::Track& track = *engine.caller_track();
  track.sample("numbers cut off by codecs",
               static_cast<double>(report.clips.forward.clipped + report.clips.backward.clipped +
                                   report.dense.clipped + report.sync.codec.clipped));
  track.sample("rows read", static_cast<double>(rows));
  track.sample("bytes of tables and buffers", static_cast<double>(host_memory_use().now));
  sample_tiers(track, engine);
}

std::vector<trace::TableReads> TraceSession::table_reads(const Engine& engine) const {
  std::vector<trace::TableReads> tables;
  const std::vector<sharding::TableReads> now = engine.embeddings().reads();
  for (std::size_t i = 0; i < now.size(); ++i) {
    tables.push_back({.table = engine.config().tables[static_cast<std::size_t>(now[i].table)].name,
                      .rows = now[i].rows - reads_before_[i].rows,
                      .bytes = now[i].bytes - reads_before_[i].bytes});
  }
  return tables;
}

/// What the ranks tell each other of the trace.
void TraceSession::complete(Engine& engine, Context& ctx) {
  comm::Communicator& comm = engine.control_comm();
  const comm::ClockOffset clock = comm::clock_offset(comm, ctx);
  const int rank = comm.world_rank(comm.rank());
  trace_ = {.rank = rank,
            .ranks = comm.size(),
            .host = host_name(),
            .backend = comm.lends() ? "local" : "mpi",
            .steps = {steps_.begin, std::min(last_step_ + 1, steps_.end)},
            .base_ns = begin_ns_,
            .clock_offset_ns = clock.offset_ns,
            .clock_error_ns = clock.error_ns,
            .tables = table_reads(engine)};
  if (rank == 0) {
    trace_.configuration =
        fmt::format("# of weft {}\n{}", version(), spec::to_changed_yaml(engine.config()));
  }
  comm.broadcast(ctx, &trace_.base_ns, sizeof trace_.base_ns, 0);
  is_first_ = comm.rank() == 0;
}

void TraceSession::write_file(comm::Communicator& comm) {
  const fs::path path = fs::path(folder_) / trace::chrome_file_name(static_cast<int>(trace_.rank));
  try {
    comm::run_watched(comm, [&](WorkProgress& progress) {
      progress.begin({.activity = "writing", .place = fmt::format("'{}'", path.string())});
      replace_file(path, trace::to_chrome_json(recorder_, trace_));
      remove_others(folder_, static_cast<int>(trace_.ranks));
    });
    lost_ = false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) {
      throw;
    }
    log_warning(
        "rank {}: {}; the training goes on{}", trace_.rank, error.what(),
        lost_ ? ", this part of the trace is lost" : ", the trace is tried again at its end");
    lost_ = true;
    return;
  }
  if (is_first_) {
    log_info("trace of steps {} to {} in {}", trace_.steps.begin, trace_.steps.end - 1, folder_);
  }
}

}  // namespace weft::train
