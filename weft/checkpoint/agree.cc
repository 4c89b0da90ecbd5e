#include "weft/checkpoint/agree.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/comm/work_watch.h"

namespace weft::checkpoint {
namespace {

/// How one rank's work has ended, as it travels.
struct Outcome {
  std::int64_t failed = 0;
  std::int64_t code = 0;
  std::int64_t origin = 0;
  std::int64_t message_bytes = 0;
};

std::optional<Error> attempt(const Work& work, WorkProgress& progress) {
  try {
    work(progress);
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
    return {};
  }
  const int origin = error->origin_rank();
  return {.failed = 1,
          .code = static_cast<std::int64_t>(error->code()),
          .origin = origin >= 0 ? origin : comm.world_rank(comm.rank()),
          .message_bytes = static_cast<std::int64_t>(std::string_view(error->what()).size())};
}

}  // namespace

void agree(comm::Communicator& comm, Context& ctx, const Work& work) {
  std::optional<Error> error;
  comm::run_watched(comm, [&](WorkProgress& progress) { error = attempt(work, progress); });
  const Outcome own = outcome_of(comm, error);
  std::vector<Outcome> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ctx, &own, all.data(), sizeof(Outcome));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].failed != 0) {
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
