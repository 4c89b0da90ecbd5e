#include "weft/comm/mpi/control.h"

#include <algorithm>
#include <string>
#include <utility>

#include "weft/comm/mpi/rank_links.h"

namespace weft::comm {
namespace {

// Rank 0's progress thread answers within milliseconds, however busy its other threads are, once it
// knows whom to blame.
constexpr auto kVerdictTime = std::chrono::seconds(4);

// A report that has met a rank which is lost goes on to the one above it, and reaches rank 0 well
// before kVerdictTime: there are log8 W ranks above any.
constexpr auto kClimbTime = std::chrono::milliseconds(300);

// For answers to what ranks wait for: progress threads answer within milliseconds, too.
constexpr auto kAnswerTime = std::chrono::seconds(1);

// For all questions one after the other: well below kVerdictTime.
constexpr auto kInquiryTime = std::chrono::seconds(2);

// Messages on the data communicator may arrive after a later one on the control communicator.
constexpr auto kLateTime = std::chrono::seconds(1);

// How long after a sign of life another one says nothing new; ranks that wait are patient for
// sixteen times as long at least.
constexpr auto kAlivePause = std::chrono::milliseconds(500);

}  // namespace

Control::Control(Post& post, int rank, int size, double timeout_s)
    : post_(post),
      rank_(rank),
      size_(size),
      neighbours_(neighbours(rank, size)),
      children_(tree_children(rank, size)),
      open_children_(children_.begin(), children_.end()),
      alive_pause_(std::min<Clock::duration>(kAlivePause,
                                             std::chrono::duration_cast<Clock::duration>(
                                                 std::chrono::duration<double>(timeout_s / 16)))),
      roll_(rank, size) {
}

/// To all, when each rank that has not passed it on before does the same.
void Control::pass_on(const std::vector<std::byte>& bytes) {
  for (const int neighbour : neighbours_) {
    post_.send(neighbour, bytes);
  }
}

void Control::decide(const Error& error) {
  if (verdict_) {
    return;
  }
  // Cut here as on the wire, so that all ranks have the same text.
  verdict_ = Error(error.code(), std::string(error.what()).substr(0, kMaxControlText),
                   error.origin_rank());
  own_.reset();
  climb_.reset();
  inquiry_.reset();
  is_asked_ = false;
  pass_on(control_message(ControlKind::kVerdict, *verdict_));
}

void Control::send_up(std::vector<std::byte> bytes) {
  const int parent = tree_parent(rank_);
  post_.send(parent, bytes);
  climb_ = {.bytes = std::move(bytes), .at = parent, .next = post_.now() + kClimbTime};
}

/// Where no verdict comes a rank between this one and rank 0 is lost, or waits for the same.
void Control::climb() {
  if (!climb_ || climb_->at == 0 || post_.now() < climb_->next) {
    return;
  }
  climb_->at = tree_parent(climb_->at);
  climb_->next += kClimbTime;
  post_.send(climb_->at, climb_->bytes);
}

void Control::fail_with(const Error& error) {
  if (verdict_ || own_) {
    return;
  }
  const Error named(error.code(), error.what(),
                    error.origin_rank() >= 0 ? error.origin_rank() : rank_);
  if (rank_ == 0) {
    decide(named);
    return;
  }
  own_ = named;
  own_is_late_ = false;
  reported_ = post_.now();
  send_up(control_message(ControlKind::kReport, named));
}

void Control::report_late(const Wait& wait) {
  if (verdict_ || own_ || inquiry_) {
    return;
  }
  if (rank_ == 0) {
    ask(wait);
    return;
  }
  own_ = timed_out(wait);
  own_is_late_ = true;
  reported_ = post_.now();
  send_up(control_message(ControlKind::kLate, std::span(&wait, 1)));
}

/// Of each kind the first goes on, and no wait after an error: rank 0 takes one of them.
void Control::receive_report(const Letter& letter, const ControlRecord& record) {
  const bool is_late = record.is(ControlKind::kLate);
  if (rank_ == 0) {
    if (!is_late) {
      decide(read_error(letter));
    } else if (const std::vector<Wait> waits = read_waits(letter); !waits.empty()) {
      report_late(waits.front());
    }
    return;
  }
  const bool own_says_it = own_ && (is_late || !own_is_late_);
  if (verdict_ || own_says_it || passed_report_ || (is_late && passed_late_)) {
    return;
  }
  (is_late ? passed_late_ : passed_report_) = true;
  post_.send(tree_parent(rank_), letter.bytes);
}

void Control::ask(const Wait& first) {
  inquiry_ = {.first = first, .begun = post_.now(), .last_asked = post_.now()};
  ask_missing_of(first);
}

/// This rank answers as the others do, through is_asked().
void Control::ask_missing_of(const Wait& wait) {
  for (const NumberedRank& missing : wait.missing) {
    const int rank = missing.in_world;
    if (rank < 0 || rank >= size_ || !inquiry_->asked.insert(rank).second) {
      continue;
    }
    inquiry_->silent.insert(rank);
    inquiry_->last_asked = post_.now();
    if (rank == rank_) {
      is_asked_ = true;
      is_asked_of_end_ = inquiry_->first.at_end;
    } else {
      post_.send(rank, control_message(ControlKind::kAsk, inquiry_->first.at_end));
    }
  }
}

void Control::answer(std::span<const Wait> waits) {
  is_asked_ = false;
  std::vector<Wait> all(waits.begin(), waits.end());
  if (is_asked_of_end_ && said_end_ && !all_have_ended_) {
    all.push_back(end_wait(0.0));
  }
  if (rank_ == 0) {
    take_answer(0, all);
  } else {
    post_.send(0, control_message(ControlKind::kAnswer, all));
  }
}

void Control::take_answer(int rank, std::span<const Wait> waits) {
  if (!inquiry_ || inquiry_->silent.erase(rank) == 0) {
    return;
  }
  for (const Wait& wait : waits) {
    inquiry_->waits.push_back(wait);
    ask_missing_of(wait);
  }
}

/// Decides once all that were asked have answered, or had the time to.
void Control::end_inquiry() {
  const Clock::time_point now = post_.now();
  if (inquiry_->silent.empty() || now - inquiry_->last_asked > kAnswerTime ||
      now - inquiry_->begun > kInquiryTime) {
    const std::vector<int> silent(inquiry_->silent.begin(), inquiry_->silent.end());
    decide(timed_out(find_fault(inquiry_->first, inquiry_->waits), silent));
  }
}

/// Rank 0 is lost, whatever else is.
void Control::give_up_on_verdict() {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(kVerdictTime);
  decide(Error(own_->code(),
               std::string(own_->what()) +
                   "; rank 0, which hears of all errors, has not answered "
                   "for " +
                   std::to_string(waited.count()) + " s: it is stopped, or out of reach",
               own_->origin_rank()));
}

bool Control::poll() {
  bool any = false;
  while (const std::optional<Letter> letter = post_.receive()) {
    receive(*letter);
    any = true;
  }
  if (inquiry_) {
    end_inquiry();
  }
  climb();
  if (own_ && post_.now() - reported_ > kVerdictTime) {
    give_up_on_verdict();
  }
  if (roll_.is_due(post_.now())) {
    pass_on(control_message(ControlKind::kRoll, roll_.tell(post_.now())));
  }
  return any;
}

void Control::receive(const Letter& letter) {
  const ControlRecord record = read_record(letter);
  switch (static_cast<ControlKind>(record.kind)) {
    case ControlKind::kReport:
    case ControlKind::kLate:
      receive_report(letter, record);
      return;
    case ControlKind::kVerdict:
      ++verdicts_heard_;
      decide(read_error(letter));
      return;
    case ControlKind::kAsk:
      is_asked_ = !verdict_;
      is_asked_of_end_ = record.flag != 0;
      return;
    case ControlKind::kAnswer:
      take_answer(letter.from, read_waits(letter));
      return;
    case ControlKind::kAlive:
      if (record.number > alive_number_) {
        alive_number_ = record.number;
        pass_alive();
      }
      return;
    case ControlKind::kRoll:
      roll_.take(body_of(letter));
      return;
    case ControlKind::kAskEnd:
    case ControlKind::kHasEnded:
    case ControlKind::kEnd:
    case ControlKind::kAllHaveEnded:
      receive_end(letter.from, record);
      return;
  }
  fail(ErrorCode::kComm, "rank {} sent a control message of kind {}", letter.from, record.kind);
}

void Control::receive_end(int from, const ControlRecord& record) {
  if (record.is(ControlKind::kAskEnd)) {
    if (said_end_) {
      post_.send(from, control_message(ControlKind::kHasEnded));
    } else {
      to_tell_.push_back(from);
    }
    return;
  }
  if (record.is(ControlKind::kHasEnded)) {
    has_ended_.emplace(from, post_.now());
    return;
  }
  if (record.flag != 0 && !failed_end_) {
    failed_end_ = post_.now();
  }
  if (record.is(ControlKind::kEnd)) {
    open_children_.erase(from);
    pass_end_up();
  } else {
    pass_end_down();
  }
}

bool Control::settled() const {
  const bool verdict_may_come =
      failed_end_ && !verdict_ && post_.now() - *failed_end_ < kVerdictTime;
  return !own_ && !inquiry_ && !verdict_may_come;
}

void Control::say_alive() {
  if (alive_number_ > 0 && post_.now() - last_alive_ < alive_pause_) {
    return;
  }
  ++alive_number_;
  pass_alive();
}

/// Each number once, so that it ends.
void Control::pass_alive() {
  last_alive_ = post_.now();
  // Where those before have not gone, ranks or links are lost, and more messages are of no use.
  if (post_.backlog() < 2 * neighbours_.size()) {
    pass_on(control_message(ControlKind::kAlive, false, alive_number_));
  }
}

void Control::ask_for_end(int rank) {
  if (asked_for_end_.insert(rank).second) {
    post_.send(rank, control_message(ControlKind::kAskEnd));
  }
}

bool Control::ended_long_ago(int rank) const {
  const auto ended = has_ended_.find(rank);
  return ended != has_ended_.end() && post_.now() - ended->second > kLateTime;
}

void Control::say_end() {
  said_end_ = true;
  for (const int rank : to_tell_) {
    post_.send(rank, control_message(ControlKind::kHasEnded));
  }
  pass_end_up();
}

/// Only whether there is an error matters; its text has come from rank 0.
void Control::pass_end_up() {
  if (!said_end_ || !open_children_.empty() || passed_end_) {
    return;
  }
  passed_end_ = true;
  if (rank_ == 0) {
    pass_end_down();
    return;
  }
  const bool has_error = verdict_ || failed_end_;
  post_.send(tree_parent(rank_), control_message(ControlKind::kEnd, has_error));
}

void Control::pass_end_down() {
  all_have_ended_ = true;
  const bool has_error = verdict_ || failed_end_;
  for (const int child : children_) {
    post_.send(child, control_message(ControlKind::kAllHaveEnded, has_error));
  }
}

Wait Control::end_wait(double seconds) const {
  Wait wait{.self = {rank_, rank_},
            .group = "world",
            .stamp = {},
            .seconds = seconds,
            .missing = {},
            .at_end = true};
  for (const int child : open_children_) {
    wait.missing.push_back({child, child});
  }
  if (wait.missing.empty() && rank_ != 0) {
    const int parent = tree_parent(rank_);
    wait.missing.push_back({parent, parent});
  }
  return wait;
}

bool Control::flushed() const {
  return post_.backlog() == 0 && (!verdict_ || verdicts_heard_ >= neighbours_.size());
}

}  // namespace weft::comm
