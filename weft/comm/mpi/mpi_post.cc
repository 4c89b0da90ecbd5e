#include "weft/comm/mpi/mpi_post.h"

#include <iterator>
#include <utility>

namespace weft::comm {

void MpiPost::send(int to, std::vector<std::byte> bytes) {
  Outgoing& message = outbox_.emplace_back();
  message.bytes = std::move(bytes);
  check_mpi(MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, to, 0,
                      comm_, &message.request),
            "MPI_Isend");
}

std::optional<Letter> MpiPost::receive() {
  int found = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
  if (found == 0) {
    for (auto message = outbox_.begin(); message != outbox_.end();) {
      int gone = 0;
      check_mpi(MPI_Test(&message->request, &gone, MPI_STATUS_IGNORE), "MPI_Test");
      message = gone != 0 ? outbox_.erase(message) : std::next(message);
    }
    return std::nullopt;
  }
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  Letter letter{.from = status.MPI_SOURCE, .bytes = {}};
  letter.bytes.resize(static_cast<std::size_t>(bytes));
  check_mpi(MPI_Recv(letter.bytes.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_,
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
  return letter;
}

}  // namespace weft::comm
