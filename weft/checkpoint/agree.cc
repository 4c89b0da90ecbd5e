#include "weft/checkpoint/agree.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/error.h"

namespace weft::checkpoint {
namespace {

/// How often a rank that still works says so: a small part of what others wait for it at most.
constexpr std::chrono::milliseconds kPulse{1000};

enum class State : std::int64_t { kWorking, kDone, kFailed };

/// How one rank's work goes, as it travels.
struct Outcome {
  State state = State::kWorking;
  std::int64_t code = 0;
  std::int64_t origin = 0;
  std::int64_t message_bytes = 0;
};

std::optional<Error> attempt(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResource, "out of memory; a checkpoint needs 16 MiB per rank");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

Outcome outcome_of(const comm::Communicator& comm, const std::optional<Error>& error) {
  if (!error) {
    return {.state = State::kDone};
  }
  const int origin = error->origin_rank();
  return {.state = State::kFailed,
          .code = static_cast<std::int64_t>(error->code()),
          .origin = origin >= 0 ? origin : comm.world_rank(comm.rank()),
          .message_bytes = static_cast<std::int64_t>(std::string_view(error->what()).size())};
}

}  // namespace

void agree(comm::Communicator& comm, Context& ctx, const std::function<void()>& work) {
  auto result = std::async(std::launch::async, [&work] { return attempt(work); });
  std::optional<Error> error;
  Outcome own;
  std::vector<Outcome> all(static_cast<std::size_t>(comm.size()));
  const auto is_working = [](const Outcome& one) { return one.state == State::kWorking; };
  do {
    if (is_working(own) && result.wait_for(kPulse) == std::future_status::ready) {
      error = result.get();
      own = outcome_of(comm, error);
    }
    comm.all_gather(ctx, &own, all.data(), sizeof(Outcome));
  } while (std::any_of(all.begin(), all.end(), is_working));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].state == State::kFailed) {
      std::string message = error ? error->what() : "";
      message.resize(static_cast<std::size_t>(all[r].message_bytes));
      comm.broadcast(ctx, message.data(), all[r].message_bytes, static_cast<int>(r));
      throw Error(static_cast<ErrorCode>(all[r].code), message, static_cast<int>(all[r].origin));
    }
  }
}

Gathered gather_bytes(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own) {
  Gathered out;
  out.counts.resize(static_cast<std::size_t>(comm.size()));
  const auto own_bytes = static_cast<std::int64_t>(own.size());
  comm.all_gather(ctx, &own_bytes, out.counts.data(), sizeof(own_bytes));
  const std::int64_t total = std::accumulate(out.counts.begin(), out.counts.end(), std::int64_t{0});
  out.bytes.resize(static_cast<std::size_t>(total));
  comm.all_gather_v(ctx, {own.data(), own_bytes, out.bytes.data(), out.counts});
  return out;
}

}  // namespace weft::checkpoint
