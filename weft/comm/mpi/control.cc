#include "weft/comm/mpi/control.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace weft::comm {
namespace {

constexpr std::uint32_t kControlMagic = 0x4c544357;  // "WCTL"
constexpr std::uint32_t kControlVersion = 3;

// Short enough for an eager message, so that receiving it never waits for its sender.
constexpr std::size_t kMaxText = 3000;

// Rank 0's progress thread answers within milliseconds, however busy its other threads are.
constexpr auto kVerdictTime = std::chrono::seconds(3);

// For answers to what ranks wait for: well below kVerdictTime, and their progress threads, too,
// answer within milliseconds.
constexpr auto kAnswerTime = std::chrono::seconds(1);

// Messages on the data communicator may arrive after a later one on the control communicator.
constexpr auto kLateTime = std::chrono::seconds(1);

struct Record {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t kind = 0;
  std::int32_t has_error = 0;
  std::int32_t code = 0;
  std::int32_t origin_rank = 0;
};

/// A wait as it travels: this, the group's name, then the missing ranks.
struct WaitRecord {
  NumberedRank self;
  std::uint64_t sequence = 0;
  std::int64_t size = 0;
  std::uint64_t arguments = 0;
  double seconds = 0.0;
  std::int32_t collective = 0;
  std::int32_t name_bytes = 0;
  std::int64_t missing = 0;
};

// Of these a wait names no more: many are missing where one that they wait for is.
constexpr std::size_t kMostMissing = 128;

void append(std::vector<std::byte>& bytes, const void* data, std::size_t count) {
  const auto* const begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count);
}

/// As many of the waits as an eager message takes.
void append_waits(std::vector<std::byte>& bytes, std::span<const Wait> waits) {
  for (const Wait& wait : waits) {
    const std::string_view name = std::string_view(wait.group).substr(0, kMaxText / 4);
    const std::size_t missing = std::min(wait.missing.size(), kMostMissing);
    const WaitRecord record{.self = wait.self,
                            .sequence = wait.stamp.sequence,
                            .size = wait.stamp.size,
                            .arguments = wait.stamp.arguments,
                            .seconds = wait.seconds,
                            .collective = static_cast<std::int32_t>(wait.stamp.collective),
                            .name_bytes = static_cast<std::int32_t>(name.size()),
                            .missing = static_cast<std::int64_t>(missing)};
    const std::size_t list = missing * sizeof(NumberedRank);
    if (bytes.size() + sizeof record + name.size() + list > kMaxText) {
      return;
    }
    append(bytes, &record, sizeof record);
    append(bytes, name.data(), name.size());
    append(bytes, wait.missing.data(), list);
  }
}

std::vector<Wait> read_waits(std::span<const std::byte> bytes) {
  std::vector<Wait> waits;
  while (bytes.size() >= sizeof(WaitRecord)) {
    WaitRecord record;
    std::memcpy(&record, bytes.data(), sizeof record);
    bytes = bytes.subspan(sizeof record);
    const auto name = static_cast<std::size_t>(record.name_bytes);
    const std::size_t list = static_cast<std::size_t>(record.missing) * sizeof(NumberedRank);
    if (name > kMaxText || list > kMaxText || name + list > bytes.size()) {
      break;  // of another build: what has been read is of use
    }
    Wait& wait = waits.emplace_back();
    wait.self = record.self;
    wait.group.assign(reinterpret_cast<const char*>(bytes.data()), name);
    wait.stamp = {.sequence = record.sequence,
                  .collective = static_cast<Collective>(record.collective),
                  .size = record.size,
                  .arguments = record.arguments};
    wait.seconds = record.seconds;
    wait.missing.resize(static_cast<std::size_t>(record.missing));
    if (list > 0) {
      std::memcpy(wait.missing.data(), bytes.data() + name, list);
    }
    bytes = bytes.subspan(name + list);
  }
  return waits;
}

}  // namespace

Control::Control(MPI_Comm comm, int rank, int size)
    : comm_(comm), rank_(rank), ended_(static_cast<std::size_t>(size)) {
  waiting_.resize(ended_.size());
}

void Control::send(int to, Kind kind, const std::optional<Error>& error) {
  Record record{
      .magic = kControlMagic, .version = kControlVersion, .kind = static_cast<std::uint32_t>(kind)};
  std::string_view text;
  if (error) {
    record.has_error = 1;
    record.code = static_cast<std::int32_t>(error->code());
    record.origin_rank = error->origin_rank();
    text = std::string_view(error->what()).substr(0, kMaxText);
  }
  std::vector<std::byte> bytes;
  append(bytes, &record, sizeof record);
  append(bytes, text.data(), text.size());
  send_bytes(to, std::move(bytes));
}

void Control::send_waits(Kind kind, std::span<const Wait> waits) {
  const Record record{
      .magic = kControlMagic, .version = kControlVersion, .kind = static_cast<std::uint32_t>(kind)};
  std::vector<std::byte> bytes;
  append(bytes, &record, sizeof record);
  append_waits(bytes, waits);
  send_bytes(0, std::move(bytes));
}

void Control::send_bytes(int to, std::vector<std::byte> bytes) {
  Outgoing& message = outbox_.emplace_back();
  message.bytes = std::move(bytes);
  check_mpi(MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, to, 0,
                      comm_, &message.request),
            "MPI_Isend");
}

void Control::decide(const Error& error) {
  if (verdict_) {
    return;
  }
  // Cut here as on the wire, so that all ranks have the same text.
  verdict_ =
      Error(error.code(), std::string(error.what()).substr(0, kMaxText), error.origin_rank());
  own_.reset();
  inquiry_.reset();
  if (rank_ == 0) {
    for (int peer = 1; peer < static_cast<int>(ended_.size()); ++peer) {
      send(peer, Kind::kVerdict, verdict_);
    }
  }
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
  reported_ = Clock::now();
  send(0, Kind::kReport, own_);
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
  reported_ = Clock::now();
  send_waits(Kind::kLate, std::span(&wait, 1));
}

/// What all ranks wait for. This one answers as the others do, through is_asked().
void Control::ask(const Wait& first) {
  inquiry_ = {.first = first,
              .asked = Clock::now(),
              .waits = {},
              .answered = std::vector<bool>(ended_.size())};
  is_asked_ = true;
  for (int peer = 1; peer < static_cast<int>(ended_.size()); ++peer) {
    send(peer, Kind::kAsk, std::nullopt);
  }
}

void Control::answer(std::span<const Wait> waits) {
  is_asked_ = false;
  if (rank_ == 0) {
    take_answer(0, {waits.begin(), waits.end()});
  } else {
    send_waits(Kind::kAnswer, waits);
  }
}

void Control::take_answer(int rank, std::vector<Wait> waits) {
  if (inquiry_) {
    inquiry_->answered[static_cast<std::size_t>(rank)] = true;
    std::move(waits.begin(), waits.end(), std::back_inserter(inquiry_->waits));
  }
}

/// Decides once all have answered, or had the time to.
void Control::end_inquiry() {
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < ended_.size(); ++rank) {
    if (!inquiry_->answered[rank]) {
      silent.push_back(static_cast<int>(rank));
    }
  }
  if (silent.empty() || Clock::now() - inquiry_->asked > kAnswerTime) {
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
  for (int found = 1; found != 0;) {
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
    if (found != 0) {
      receive(status);
      any = true;
    }
  }
  for (auto message = outbox_.begin(); message != outbox_.end();) {
    int gone = 0;
    check_mpi(MPI_Test(&message->request, &gone, MPI_STATUS_IGNORE), "MPI_Test");
    message = gone != 0 ? outbox_.erase(message) : std::next(message);
  }
  if (inquiry_) {
    end_inquiry();
  }
  if (own_ && Clock::now() - reported_ > kVerdictTime) {
    give_up_on_verdict();
  }
  return any;
}

void Control::receive(const MPI_Status& status) {
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  std::vector<std::byte> message(static_cast<std::size_t>(bytes));
  check_mpi(MPI_Recv(message.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_,
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
  Record record;
  if (message.size() < sizeof record) {
    fail(ErrorCode::kComm, "rank {} sent a control message of {} bytes", status.MPI_SOURCE, bytes);
  }
  std::memcpy(&record, message.data(), sizeof record);
  if (record.magic != kControlMagic || record.version != kControlVersion) {
    fail(ErrorCode::kComm,
         "rank {} sent a control message with magic {:x} and version {}; do all ranks run the same "
         "version of Weft?",
         status.MPI_SOURCE, record.magic, record.version);
  }
  if (record.kind == static_cast<std::uint32_t>(Kind::kEnd)) {
    ended_[static_cast<std::size_t>(status.MPI_SOURCE)] = Clock::now();
    any_ended_ = true;
    if (record.has_error != 0 && !failed_end_) {
      failed_end_ = Clock::now();
    }
    return;
  }
  if (record.kind == static_cast<std::uint32_t>(Kind::kAlive)) {
    last_alive_ = Clock::now();
    return;
  }
  if (record.kind == static_cast<std::uint32_t>(Kind::kWaiting)) {
    waiting_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    return;
  }
  if (record.kind == static_cast<std::uint32_t>(Kind::kAsk)) {
    is_asked_ = !verdict_;
    return;
  }
  if (record.kind == static_cast<std::uint32_t>(Kind::kLate) ||
      record.kind == static_cast<std::uint32_t>(Kind::kAnswer)) {
    std::vector<Wait> waits = read_waits(std::span(message).subspan(sizeof record));
    if (record.kind == static_cast<std::uint32_t>(Kind::kAnswer)) {
      take_answer(status.MPI_SOURCE, std::move(waits));
    } else if (!waits.empty()) {
      report_late(waits.front());
    }
    return;
  }
  const std::string text(reinterpret_cast<const char*>(message.data()) + sizeof record,
                         message.size() - sizeof record);
  decide(Error(static_cast<ErrorCode>(record.code), text, record.origin_rank));
}

bool Control::settled() const {
  const bool verdict_may_come =
      failed_end_ && !verdict_ && Clock::now() - *failed_end_ < kVerdictTime;
  return !own_ && !inquiry_ && !verdict_may_come;
}

void Control::say_alive() {
  last_alive_ = Clock::now();
  // Where those before have not gone, ranks or links are lost, and more messages are of no use.
  if (outbox_.size() < 2 * ended_.size()) {
    for (int peer = 0; peer < static_cast<int>(ended_.size()); ++peer) {
      if (peer != rank_) {
        send(peer, Kind::kAlive, std::nullopt);
      }
    }
  }
}

void Control::say_waiting() {
  if (said_waiting_) {
    return;
  }
  said_waiting_ = true;
  for (int peer = 0; peer < static_cast<int>(ended_.size()); ++peer) {
    if (peer != rank_) {
      send(peer, Kind::kWaiting, std::nullopt);
    }
  }
}

std::vector<int> Control::lost() const {
  std::vector<int> ranks;
  for (const int rank : not_ended()) {
    if (rank != rank_ && !waiting_[static_cast<std::size_t>(rank)]) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void Control::say_end() {
  said_end_ = true;
  ended_[static_cast<std::size_t>(rank_)] = Clock::now();
  for (int peer = 0; peer < static_cast<int>(ended_.size()); ++peer) {
    if (peer != rank_) {
      // Only whether there is an error matters; the text has come from rank 0.
      send(peer, Kind::kEnd, verdict_);
    }
  }
}

bool Control::all_have_ended() const {
  return std::all_of(ended_.begin(), ended_.end(),
                     [](const auto& ended) { return ended.has_value(); });
}

std::vector<int> Control::not_ended() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < ended_.size(); ++rank) {
    if (!ended_[rank]) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

bool Control::ended_long_ago(int rank) const {
  const auto& ended = ended_[static_cast<std::size_t>(rank)];
  return ended && Clock::now() - *ended > kLateTime;
}

}  // namespace weft::comm
