/// Private to comm/mpi: messages that nobody waits for any more.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "weft/comm/mpi/mpi_calls.h"

namespace weft::comm {

/// After an error: takes in what others sent before they heard of it, and forgets it. MPI reads a
/// long message from its sender's memory until a receiver has all of it, so only a message that is
/// taken gives the memory back, and leaves nothing for MPI_Finalize to wait for. Progress thread
/// only.
class Sink {
 public:
  explicit Sink(MPI_Comm comm) : comm_(comm) {}

  /// Begins to receive what has come, and ends what has arrived. Does not block.
  void take();

  /// Nothing is arriving.
  [[nodiscard]] bool empty() const { return messages_.empty(); }

 private:
  struct Message {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm comm_;
  std::list<Message> messages_;
};

}  // namespace weft::comm
