#include "weft/checkpoint/agree.h"

#include <new>
#include <numeric>
#include <optional>
#include <string>

#include "weft/base/error.h"

namespace weft::checkpoint {
namespace {

/// How one rank's work went, as it travels.
struct Outcome {
  std::int64_t failed = 0;
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
    return Error(ErrorCode::kResource, "a checkpoint ran out of memory: it needs 16 MiB per rank");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

}  // namespace

void agree(comm::Communicator& comm, Context& ctx, const std::function<void()>& work) {
  const std::optional<Error> error = attempt(work);
  Outcome own;
  std::string message;
  if (error) {
    message = error->what();
    const int origin = error->origin_rank();
    own = {1, static_cast<std::int64_t>(error->code()),
           origin >= 0 ? origin : comm.world_rank(comm.rank()),
           static_cast<std::int64_t>(message.size())};
  }
  std::vector<Outcome> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ctx, &own, all.data(), sizeof(Outcome));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].failed != 0) {
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
