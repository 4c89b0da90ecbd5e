#include "weft/comm/mpi/mpi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <pthread.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "weft/base/log.h"
#include "weft/comm/mpi/control.h"
#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/find_carrier.h"
#include "weft/comm/mpi/mpi_calls.h"
#include "weft/comm/mpi/mpi_post.h"
#include "weft/comm/mpi/open_files.h"
#include "weft/comm/mpi/sink.h"
#include "weft/comm/mpi/tcp_ports.h"
#include "weft/comm/mpi/transfer.h"
#include "weft/comm/waits.h"

namespace weft::comm {

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    fail(ErrorCode::kComm, "{} failed: {}; the log of mpirun may say more about the network", call,
         std::string_view(text.data(), static_cast<std::size_t>(length)));
  }
}

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::microseconds;

// Between two tests that find nothing the thread sleeps, from the first of these to the second,
// half as much more each time: short exchanges are noticed early, and a long wait costs a few per
// cent of a core. After kLongWait nothing is lost by looking less often.
constexpr Microseconds kShortestPause{10};
constexpr Microseconds kLongestPause{100};
constexpr Microseconds kPauseOfLongWait{300};
constexpr auto kLongWait = std::chrono::milliseconds(20);

// How often an idle process looks for the errors of others. A new exchange wakes it at once.
constexpr auto kIdlePause = std::chrono::milliseconds(5);

// An exchange that has waited so long, and a quarter of the timeout at most, asks those that are
// missing for their end, and looks for it so often.
constexpr auto kAskForEnd = std::chrono::seconds(1);
constexpr auto kLookForEnd = std::chrono::milliseconds(100);

// How long before the limit after an error ranks begin to say what they are doing: half of it at
// most.
constexpr auto kRollTime = std::chrono::seconds(1);

// How much later than the first of the ranks that live each next one ends the job.
constexpr auto kNextTurn = std::chrono::seconds(1);

constexpr int kMaxLimitText = 1024;  // of claim_sockets(), as it travels

constexpr int kAbortStatus = 4;  // the exit status of communication errors

/// "rank 1, rank 2".
std::string name_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

/// Before MPI starts, and says less where it fails. One rank of each host looks.
void warn_of_listening() {
  const char* own = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (own == nullptr || std::string_view(own) != "0") {
    return;
  }
  for (const char* range : {"OMPI_MCA_btl_tcp_port_range_v4", "OMPI_MCA_btl_tcp_port_range_v6"}) {
    if (const auto wrong =
            listening_shortage(std::getenv(range), std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"))) {
      log_warning("{} ({})", *wrong, range);
    }
  }
}

/// An exchange that a caller waits for.
struct Ticket {
  std::shared_ptr<Transfer> transfer;
  Clock::time_point moved;   ///< when a message last arrived or went, at first when it began
  Clock::time_point looked;  ///< for the end of those that are missing
  std::condition_variable done_changed;
  bool done = false;    ///< guarded by the engine's mutex
  bool failed = false;  ///< the world's error, not a result
  // Of the progress thread:
  bool broken = false;  ///< has reported an error and waits for the verdict
  bool cancelled = false;
};

class ProgressEngine final : public Engine {
 public:
  explicit ProgressEngine(const MpiOptions& options) : options_(options) {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "weft-mpi");
    std::unique_lock lock(mutex_);
    started_changed_.wait(lock, [&] { return started_ || error_; });
    if (!started_) {
      const Error error = *error_;
      lock.unlock();
      thread_.join();
      throw Error(error);
    }
  }

  ~ProgressEngine() override { end_thread(); }

  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] int host(int rank) const override { return hosts_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] const Carrier& carrier() const override { return carrier_; }

  std::unique_ptr<Channel> make_channel(std::int64_t group) override;

  void exchange(Ticket& ticket);

  void abort(const Error& error) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!abort_request_) {
      abort_request_ = error;
    }
    wake_.notify_one();
  }

  void check() const override {
    const std::lock_guard lock(mutex_);
    if (error_) {
      throw Error(*error_);
    }
  }

  [[nodiscard]] double timeout_s() const override { return options_.timeout_s; }

  void say_alive() noexcept override {
    const std::lock_guard lock(mutex_);
    alive_request_ = true;
    wake_.notify_one();
  }

  void explain_lost_ranks(LostRanksText text) override {
    const std::lock_guard lock(mutex_);
    lost_ranks_text_ = std::move(text);
  }

  void finish() override {
    end_thread();
    check();
  }

 private:
  void run();
  void initialise();
  void find_hosts();
  void claim_files();
  void look_at_ports();
  void loop();
  void take_requests();
  bool progress_all();
  bool progress_one(Ticket& ticket);
  [[nodiscard]] Wait wait_of(const Ticket& ticket) const;
  void answer();
  void watch(Ticket& ticket);
  void look_for_end(const ExchangeCall& call, const std::vector<int>& missing);
  bool publish_verdict();
  bool drain(Ticket& ticket);
  [[nodiscard]] double shutdown_limit() const;
  [[nodiscard]] RollState own_state() const;
  void call_roll();
  [[noreturn]] void end_job();
  void complete(Ticket& ticket, bool failed);
  bool may_end();
  [[nodiscard]] std::string loss(const std::vector<int>& ranks) const;
  void watch_end();
  void pace(bool moved);
  void die(const Error& error);
  void end_thread();

  MpiOptions options_;
  int rank_ = 0;
  int size_ = 1;
  int tag_limit_ = 0;
  std::vector<int> hosts_;  ///< [ranks]
  MPI_Comm data_ = MPI_COMM_NULL;
  Carrier carrier_;
  io::OpenFileClaim sockets_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  ///< of the progress thread
  std::condition_variable started_changed_;
  std::vector<Ticket*> submitted_;
  std::optional<Error> abort_request_;
  std::optional<Error> error_;  ///< the world's
  LostRanksText lost_ranks_text_;
  bool started_ = false;
  bool finishing_ = false;
  bool alive_request_ = false;

  // Of the progress thread:
  std::optional<MpiPost> post_;
  std::optional<Control> control_;
  std::vector<Ticket*> active_;
  std::optional<Sink> sink_;  ///< after an error
  bool error_published_ = false;
  bool end_requested_ = false;
  Clock::time_point error_time_;
  Clock::time_point end_time_;
  Clock::time_point last_moved_;
  Microseconds pause_ = kShortestPause;

  std::thread thread_;
};

class MpiChannel final : public Channel {
 public:
  MpiChannel(ProgressEngine& engine, std::shared_ptr<Transfer> transfer) : engine_(engine) {
    ticket_.transfer = std::move(transfer);
  }

  void exchange(const ExchangeCall& call) override {
    engine_.check();
    ticket_.transfer->prepare(call);
    engine_.exchange(ticket_);
    ticket_.transfer->unpack();
  }

 private:
  ProgressEngine& engine_;
  Ticket ticket_;
};

std::unique_ptr<Channel> ProgressEngine::make_channel(std::int64_t group) {
  if (2 * group + 1 > tag_limit_) {
    fail(ErrorCode::kResource, "group {} needs an MPI tag above the limit {}; make fewer groups",
         group, tag_limit_);
  }
  return std::make_unique<MpiChannel>(
      *this, std::make_shared<Transfer>(data_, options_.max_message_bytes));
}

void ProgressEngine::exchange(Ticket& ticket) {
  std::unique_lock lock(mutex_);
  if (error_) {
    throw Error(*error_);
  }
  ticket.moved = ticket.looked = Clock::now();
  ticket.done = ticket.failed = ticket.broken = ticket.cancelled = false;
  submitted_.push_back(&ticket);
  wake_.notify_one();
  ticket.done_changed.wait(lock, [&] { return ticket.done; });
  if (ticket.failed) {
    throw Error(*error_);
  }
}

void ProgressEngine::run() {
#if defined(__linux__)
  // Sleeps as short as asked for: by default the kernel adds 50 microseconds.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
  try {
    initialise();
    loop();
    check_mpi(MPI_Finalize(), "MPI_Finalize");
  } catch (...) {
    die(as_error(std::current_exception(), rank_));
  }
}

void ProgressEngine::initialise() {
  warn_of_listening();
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    fail(ErrorCode::kComm, "this MPI supports no threads (level {}); use one that does", provided);
  }
  // Each return code is looked at, so that an error reaches the other ranks with its text.
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm control = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &data_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control), "MPI_Comm_dup");
  int* limit = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found),
            "MPI_Comm_get_attr");
  tag_limit_ = found != 0 ? *limit : 32767;  // the least that MPI allows
  carrier_ = carrier_of(find_components());
  find_hosts();
  claim_files();
  look_at_ports();
  post_.emplace(control);
  control_.emplace(*post_, rank_, size_, options_.timeout_s);
  last_moved_ = Clock::now();
  const std::lock_guard lock(mutex_);
  started_ = true;
  started_changed_.notify_all();
}

/// Ranks that can share memory are on one host.
void ProgressEngine::find_hosts() {
  if (!options_.hosts.empty()) {
    if (options_.hosts.size() < static_cast<std::size_t>(size_)) {
      fail(ErrorCode::kUsage, "an MPI job of {} ranks got hosts of {}", size_,
           options_.hosts.size());
    }
    hosts_ = options_.hosts;
    return;
  }
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  int first = rank_;
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, host), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  hosts_.resize(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&first, 1, MPI_INT, hosts_.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "MPI_Allgather");
}

/// Sockets are opened with the first messages, so before them. Where a rank may not have so many
/// and needs them, all ranks end in order with the error of the lowest.
void ProgressEngine::claim_files() {
  const int own = hosts_[static_cast<std::size_t>(rank_)];
  const auto here = std::count(hosts_.begin(), hosts_.begin() + size_, own);
  const std::set<int> hosts(hosts_.begin(), hosts_.begin() + size_);
  std::optional<std::string> wrong =
      claim_sockets(sockets_, {.ranks = size_,
                               .hosts = static_cast<int>(hosts.size()),
                               .elsewhere = size_ - static_cast<int>(here)});
  if (wrong && !carrier_.sockets) {
    log_warning("rank {}: if messages between hosts go over TCP, {}", rank_, *wrong);
    wrong.reset();
  }
  const int candidate = wrong ? rank_ : size_;
  int lowest = size_;
  check_mpi(MPI_Allreduce(&candidate, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
            "MPI_Allreduce");
  if (lowest == size_) {
    return;
  }
  std::string text = wrong.value_or("");
  text.resize(kMaxLimitText, ' ');
  check_mpi(MPI_Bcast(text.data(), kMaxLimitText, MPI_CHAR, lowest, MPI_COMM_WORLD), "MPI_Bcast");
  text.erase(text.find_last_not_of(' ') + 1);
  check_mpi(MPI_Finalize(), "MPI_Finalize");
  throw Error(ErrorCode::kResource, text, lowest);
}

/// The lowest rank on whose host ports may run short says so. Not an error: which sockets are
/// opened, and from which end, depends on forms and on who sends first.
void ProgressEngine::look_at_ports() {
  const int own = hosts_[static_cast<std::size_t>(rank_)];
  const auto here = static_cast<int>(std::count(hosts_.begin(), hosts_.begin() + size_, own));
  const std::optional<PortRange> range = local_port_range();
  std::optional<std::string> wrong;
  if (carrier_.sockets && range) {
    wrong = port_shortage({.here = here, .elsewhere = size_ - here}, *range);
  }
  const int candidate = wrong ? rank_ : size_;
  int lowest = size_;
  check_mpi(MPI_Allreduce(&candidate, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
            "MPI_Allreduce");
  if (lowest == rank_) {
    log_warning("rank {}: {}", rank_, *wrong);
  }
}

void ProgressEngine::loop() {
  for (;;) {
    take_requests();
    bool moved = control_->poll();
    moved = publish_verdict() || moved;
    moved = progress_all() || moved;
    if (control_->is_asked()) {
      answer();
    }
    if (error_published_) {
      sink_->take();
      call_roll();
    }
    if (end_requested_ && may_end()) {
      return;
    }
    pace(moved);
  }
}

void ProgressEngine::take_requests() {
  std::vector<Ticket*> fresh;
  std::optional<Error> abort_request;
  bool alive = false;
  {
    const std::lock_guard lock(mutex_);
    fresh.swap(submitted_);
    abort_request.swap(abort_request_);
    alive = std::exchange(alive_request_, false);
    if (finishing_ && !end_requested_) {
      end_requested_ = true;
      end_time_ = Clock::now();
    }
  }
  if (abort_request) {
    control_->fail_with(*abort_request);
  }
  if (alive && !control_->has_said_end()) {
    control_->say_alive();
  }
  for (Ticket* ticket : fresh) {
    active_.push_back(ticket);
    pause_ = kShortestPause;
    last_moved_ = Clock::now();
    if (control_->verdict()) {
      ticket->cancelled = true;  // nothing has been sent yet
    } else {
      ticket->transfer->start();
    }
  }
}

bool ProgressEngine::progress_all() {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    Ticket& ticket = *active_[i];
    const bool ended = error_published_ ? drain(ticket) : progress_one(ticket);
    if (ended) {
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      complete(ticket, error_published_);
    } else {
      ++i;
    }
    moved = moved || ended;
  }
  return moved;
}

bool ProgressEngine::progress_one(Ticket& ticket) {
  if (ticket.broken) {
    return false;
  }
  try {
    if (ticket.transfer->progress()) {
      ticket.moved = last_moved_ = Clock::now();
      pause_ = kShortestPause;
    }
    if (ticket.transfer->complete()) {
      return true;
    }
    watch(ticket);
  } catch (const Error& error) {
    ticket.broken = true;
    control_->fail_with(error);
  }
  return false;
}

Wait ProgressEngine::wait_of(const Ticket& ticket) const {
  const ExchangeCall& call = ticket.transfer->call();
  const std::chrono::duration<double> waited = Clock::now() - ticket.moved;
  Wait wait{.self = {call.self, call.names.world(call.self)},
            .group = std::string(call.names.name),
            .stamp = call.stamp,
            .seconds = waited.count(),
            .missing = {}};
  for (const int peer : ticket.transfer->missing()) {
    wait.missing.push_back({peer, call.names.world(peer)});
  }
  return wait;
}

/// For rank 0, which asks who waits for whom.
void ProgressEngine::answer() {
  std::vector<Wait> waits;
  for (const Ticket* ticket : active_) {
    waits.push_back(wait_of(*ticket));
  }
  control_->answer(waits);
}

void ProgressEngine::watch(Ticket& ticket) {
  const Clock::time_point now = Clock::now();
  // Whoever says that it is alive may be who those that are missing wait for.
  if (now - std::max(ticket.moved, control_->last_alive()) > seconds(options_.timeout_s)) {
    ticket.broken = true;
    Wait wait = wait_of(ticket);
    wait.seconds = options_.timeout_s;
    control_->report_late(wait);
    return;
  }
  const auto patience = std::min<Clock::duration>(kAskForEnd, seconds(options_.timeout_s / 4));
  if (now - ticket.moved > patience && now - ticket.looked > kLookForEnd) {
    ticket.looked = now;
    look_for_end(ticket.transfer->call(), ticket.transfer->missing());
  }
}

/// Throws where one of these, whom an exchange misses, has come to the end.
void ProgressEngine::look_for_end(const ExchangeCall& call, const std::vector<int>& missing) {
  for (const int peer : missing) {
    control_->ask_for_end(call.names.world(peer));
    if (control_->ended_long_ago(call.names.world(peer))) {
      throw peer_ended(call.names, call.stamp, call.self, peer);
    }
  }
}

bool ProgressEngine::publish_verdict() {
  if (error_published_ || !control_->verdict()) {
    return false;
  }
  error_published_ = true;
  sink_.emplace(data_);
  error_time_ = Clock::now();
  const std::lock_guard lock(mutex_);
  error_ = *control_->verdict();
  return true;
}

/// After an error. Returns whether the caller's memory is no longer in use: what was sent is read
/// from there until its receiver has it, and every rank takes in all that comes. A rank that does
/// not is lost, and the job with it.
bool ProgressEngine::drain(Ticket& ticket) {
  Transfer& transfer = *ticket.transfer;
  if (!ticket.cancelled) {
    ticket.cancelled = true;
    transfer.cancel();
  }
  transfer.progress();
  return transfer.complete();
}

void ProgressEngine::complete(Ticket& ticket, bool failed) {
  const std::lock_guard lock(mutex_);
  ticket.failed = failed;
  ticket.done = true;
  // Under the mutex, as the ticket may be gone as soon as its caller sees `done`.
  ticket.done_changed.notify_one();
}

bool ProgressEngine::may_end() {
  if (!active_.empty() || !control_->settled()) {
    return false;
  }
  if (!control_->has_said_end()) {
    control_->say_end();
  }
  if (control_->all_have_ended()) {
    return control_->flushed() && (!sink_ || sink_->empty());
  }
  watch_end();
  return false;
}

/// "TEXT. ", where the program has something to say of it.
std::string ProgressEngine::loss(const std::vector<int>& ranks) const {
  LostRanksText text;
  {
    const std::lock_guard lock(mutex_);
    text = lost_ranks_text_;
  }
  const std::string told = text ? text(ranks) : "";
  return told.empty() ? told : told + ". ";
}

/// How long ranks may take to come to the end after an error.
double ProgressEngine::shutdown_limit() const {
  return std::min(options_.shutdown_timeout_s, 2.0 * options_.timeout_s);
}

/// Before an error: the others come to the end, too, or say that they are alive.
void ProgressEngine::watch_end() {
  const auto begin = std::max(end_time_, control_->last_alive());
  if (!error_published_ && Clock::now() - begin > seconds(options_.timeout_s)) {
    control_->report_late(control_->end_wait(options_.timeout_s));
  }
}

RollState ProgressEngine::own_state() const {
  if (control_->has_said_end()) {
    return RollState::kEnded;
  }
  return end_requested_ || !active_.empty() ? RollState::kWaits : RollState::kElsewhere;
}

/// After an error: where the end has not come in time, ranks find out which of them are lost. Of
/// the others the first ends the job, and the next ones only where it has not: Open MPI's launcher
/// has crashed, and hung, when many ended it at once. A rank whose caller hangs outside of Weft
/// ends it where all ranks do, and nobody is left to say so.
void ProgressEngine::call_roll() {
  const Clock::duration limit = seconds(shutdown_limit());
  const Clock::duration waited = Clock::now() - error_time_;
  if (waited > limit - std::min<Clock::duration>(kRollTime, limit / 2) ||
      control_->roll().begun()) {
    control_->answer_roll(own_state());
  }
  if (waited > limit && waited > limit + control_->roll().turn() * kNextTurn) {
    end_job();
  }
}

void ProgressEngine::end_job() {
  const bool hangs = own_state() == RollState::kElsewhere;
  const std::vector<int> lost = hangs ? std::vector<int>{rank_} : control_->roll().lost();
  log_message(
      LogLevel::kError,
      fmt::format("rank {}: {} did not come to the end within {:.1f} s after an error; ending the "
                  "job with MPI_Abort. {}The error: {}",
                  rank_, hangs ? "this rank" : name_ranks(lost), shutdown_limit(), loss(lost),
                  control_->verdict() ? control_->verdict()->what() : "of MPI"));
  MPI_Abort(MPI_COMM_WORLD, kAbortStatus);
  std::_Exit(kAbortStatus);  // MPI_Abort does not return
}

void ProgressEngine::pace(bool moved) {
  if (moved) {
    return;
  }
  std::unique_lock lock(mutex_);
  if (!submitted_.empty() || abort_request_ || (finishing_ && !end_requested_)) {
    return;
  }
  if (active_.empty() && !end_requested_ && control_->settled()) {
    wake_.wait_for(lock, kIdlePause);
    return;
  }
  wake_.wait_for(lock, pause_);
  const bool long_wait = Clock::now() - last_moved_ > kLongWait;
  pause_ = std::min(pause_ * 3 / 2, long_wait ? kPauseOfLongWait : kLongestPause);
}

/// MPI itself has failed. Callers get the error; the job is ended when they have come to the end.
void ProgressEngine::die(const Error& error) {
  std::unique_lock lock(mutex_);
  if (!error_) {
    error_ = error;
  }
  if (!started_) {
    started_changed_.notify_all();
    return;
  }
  active_.insert(active_.end(), submitted_.begin(), submitted_.end());
  submitted_.clear();
  for (Ticket* ticket : active_) {
    ticket->failed = ticket->done = true;
    ticket->done_changed.notify_one();
  }
  active_.clear();
  wake_.wait_for(lock, seconds(options_.shutdown_timeout_s), [&] { return finishing_; });
  lock.unlock();
  log_message(LogLevel::kError,
              fmt::format("rank {}: ending the job with MPI_Abort: {}", rank_, error.what()));
  MPI_Abort(MPI_COMM_WORLD, kAbortStatus);
}

void ProgressEngine::end_thread() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace

std::unique_ptr<Engine> Engine::start(const MpiOptions& options) {
  return std::make_unique<ProgressEngine>(options);
}

}  // namespace weft::comm
