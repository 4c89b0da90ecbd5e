/// Private to comm/mpi: messages of Control on a communicator of their own.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <vector>

#include "weft/comm/mpi/mpi_calls.h"
#include "weft/comm/mpi/post.h"

namespace weft::comm {

/// Non-blocking sends and probes. Progress thread only.
class MpiPost final : public Post {
 public:
  explicit MpiPost(MPI_Comm comm) : comm_(comm) {}

  void send(int to, std::vector<std::byte> bytes) override;
  std::optional<Letter> receive() override;

  [[nodiscard]] std::size_t backlog() const override { return outbox_.size(); }

  [[nodiscard]] Clock::time_point now() const override { return Clock::now(); }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm comm_;
  std::list<Outgoing> outbox_;
};

}  // namespace weft::comm
