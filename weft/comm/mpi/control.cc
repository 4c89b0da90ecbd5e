#include "weft/comm/mpi/control.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace weft::comm {
namespace {

constexpr std::uint32_t kControlMagic = 0x4c544357;  // "WCTL"
constexpr std::uint32_t kControlVersion = 2;

// Short enough for an eager message, so that receiving it never waits for its sender.
constexpr std::size_t kMaxText = 3000;

// Rank 0's progress thread answers within milliseconds, however busy its other threads are.
constexpr auto kVerdictTime = std::chrono::seconds(3);

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
  Outgoing& message = outbox_.emplace_back();
  message.bytes.resize(sizeof record + text.size());
  std::memcpy(message.bytes.data(), &record, sizeof record);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(),
              message.bytes.begin() + sizeof record);
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
  if (own_ && Clock::now() - reported_ > kVerdictTime) {
    decide(Error(*own_));
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
  const std::string text(reinterpret_cast<const char*>(message.data()) + sizeof record,
                         message.size() - sizeof record);
  decide(Error(static_cast<ErrorCode>(record.code), text, record.origin_rank));
}

bool Control::settled() const {
  const bool verdict_may_come =
      failed_end_ && !verdict_ && Clock::now() - *failed_end_ < kVerdictTime;
  return !own_ && !verdict_may_come;
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
