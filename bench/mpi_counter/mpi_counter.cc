// A library that is loaded before a program of an MPI job (LD_PRELOAD): it counts what the program
// sends, and gives ranks of one machine hosts of their own. So builds of any age can be compared,
// also those that count nothing themselves (scripts/scaling --before).
//
//   MPI_COUNTER_PER_HOST   ranks of a host; every MPI_COMM_TYPE_SHARED split is made by it
//   MPI_COUNTER_OUT        the file, with ".RANK" behind it, that gets a line of JSON at the end:
//                          messages and bytes sent, seconds of a processor, the largest resident
//                          set
//
// Weft sends with MPI_Isend alone, by one thread.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <mpi.h>
#include <sys/resource.h>

namespace {

std::int64_t messages = 0;
std::int64_t bytes_sent = 0;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

void write_counts(const char* out) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::FILE* const file = std::fopen((std::string(out) + "." + std::to_string(rank)).c_str(), "w");
  if (file == nullptr) {
    std::perror("mpi_counter: MPI_COUNTER_OUT");
    return;
  }
  std::fprintf(file,
               "{\"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"resident\": %lld}\n",
               static_cast<long long>(messages), static_cast<long long>(bytes_sent),
               seconds(use.ru_utime) + seconds(use.ru_stime), 1024LL * use.ru_maxrss);
  std::fclose(file);
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data,
              int count,
              MPI_Datatype type,
              int to,
              int tag,
              MPI_Comm comm,
              MPI_Request* request) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  ++messages;
  bytes_sent += std::int64_t{bytes} * count;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  const char* const per_host = std::getenv("MPI_COUNTER_PER_HOST");
  if (per_host == nullptr || type != MPI_COMM_TYPE_SHARED) {
    return PMPI_Comm_split_type(comm, type, key, info, made);
  }
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return PMPI_Comm_split(comm, rank / std::atoi(per_host), key, made);
}

int MPI_Finalize() {
  if (const char* const out = std::getenv("MPI_COUNTER_OUT"); out != nullptr) {
    write_counts(out);
  }
  return PMPI_Finalize();
}

}  // extern "C"
