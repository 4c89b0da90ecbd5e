// A library that is loaded before a program of an MPI job (LD_PRELOAD): it counts what the program
// sends, and gives ranks of one machine hosts of their own. So builds of any age can be compared,
// also those that count nothing themselves (scripts/scaling --before).
//
//   MPI_COUNTER_PER_HOST   ranks of a host, at least 1; MPI_COMM_TYPE_SHARED splits are made by it
//   MPI_COUNTER_LEFT_OUT   lengths in bytes, with commas between them: such messages do not count
//   MPI_COUNTER_OUT        the file, with ".RANK" behind it, that gets a line of JSON at the end:
//                          messages and bytes sent, seconds of a processor, the largest resident
//                          set
//
// After its start Weft sends with MPI_Isend alone, by one thread. Signs of life, errors and the end
// of a job are counted too; collectives of the start are not.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <mpi.h>
#include <sys/resource.h>

namespace {

/// Returns the lengths of messages that do not count.
std::vector<std::int64_t> lengths_left_out() {
  std::vector<std::int64_t> lengths;
  const char* const text = std::getenv("MPI_COUNTER_LEFT_OUT");
  std::istringstream numbers(text == nullptr ? "" : text);
  for (std::string number; std::getline(numbers, number, ',');) {
    lengths.push_back(std::atoll(number.c_str()));
  }
  return lengths;
}

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
  static const std::vector<std::int64_t> left_out = lengths_left_out();
  int element = 0;
  PMPI_Type_size(type, &element);
  const std::int64_t bytes = std::int64_t{element} * count;
  if (std::find(left_out.begin(), left_out.end(), bytes) == left_out.end()) {
    ++messages;
    bytes_sent += bytes;
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  const char* const text = std::getenv("MPI_COUNTER_PER_HOST");
  const int per_host = text == nullptr ? 0 : std::atoi(text);
  if (per_host < 1 || type != MPI_COMM_TYPE_SHARED) {
    return PMPI_Comm_split_type(comm, type, key, info, made);
  }
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return PMPI_Comm_split(comm, rank / per_host, key, made);
}

int MPI_Finalize() {
  if (const char* const out = std::getenv("MPI_COUNTER_OUT"); out != nullptr) {
    write_counts(out);
  }
  return PMPI_Finalize();
}

}  // extern "C"
