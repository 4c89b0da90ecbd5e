/// The `mpi` backend: ranks are processes of an MPI job.
///
/// One progress thread per process makes every MPI call, initialisation and finalisation included,
/// so any level of thread support from MPI_THREAD_FUNNELED on is enough. Exchanges are non-blocking
/// messages between pairs: a header (sequence, collective, sizes) with the data behind it up to
/// 16 KiB, else the data in messages of at most max_message_bytes. Buffers and requests are those
/// of the lanes in use: a silent lane costs nothing. The thread tests, and sleeps
/// between tests for a time that grows while nothing happens; it never spins.
///
/// Errors travel on a control communicator of their own: a rank that fails tells rank 0 up a tree,
/// which makes the first error it hears of the world's, and each rank passes that on. After it
/// nothing is exchanged any more, all ranks end in order, and MPI_Abort is only for a rank that
/// does not come to the end. A rank that does long work of its own (Communicator::say_alive) says
/// so there too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft::comm {

/// Whether this build has MPI.
bool mpi_available();

/// Whether a launcher (mpirun, srun, a PMIx job) started this process as one of several ranks or as
/// an MPI job of one; looks at the environment only.
bool launched_by_mpi();

/// Options of MpiSession.
struct MpiOptions {
  double timeout_s = 300.0;          ///< how long a collective waits when nothing moves
  double shutdown_timeout_s = 30.0;  ///< how long the end waits for the others after an error; at
                                     ///< most twice timeout_s
  /// Longer data travels in messages of this size: docs/collectives.md, "Length of messages". Equal
  /// on all ranks; at most 1 GiB.
  std::int64_t max_message_bytes = std::int64_t{4} << 20;
  std::vector<int> hosts = {};  ///< [ranks, or more] as if ranks were there; empty: as found
};

/// MPI for the life of the object; at most one per process, ever, as MPI cannot be started twice.
class MpiSession {
 public:
  /// Initialises MPI. Throws Error(kConfig) when the build has none, Error(kComm) when it does not
  /// start. Raises this process's soft limit of open files where messages to ranks of other hosts
  /// need it, a socket each; where the hard limit of any rank is below that and messages go over
  /// TCP, throws Error(kResource) on all ranks, with that rank's number, its limit and what is
  /// needed.
  explicit MpiSession(const MpiOptions& options);

  /// As finish(), but logs instead of throwing. Communicators must be gone by then, world() aside.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Returns the communicator of all ranks of the job, which the session owns.
  [[nodiscard]] Communicator& world();

  /// Runs `body` with the world and then finish(). An exception of the body becomes the world's
  /// error, as Error with this rank as origin_rank; what is thrown here is the world's error, the
  /// same on all ranks.
  void run(const std::function<void(Communicator& world)>& body);

  /// Waits for all ranks to come here and finalises MPI. Throws the world's error if there is one.
  /// Ranks that wait for this one in a collective get Error(kComm). A rank that does not come in
  /// shutdown_timeout_s is ended by MPI_Abort, and with it the job.
  void finish();

  /// What the communicators of this process are waiting for, for the log of a job that is killed.
  /// Call it from a thread that waits for signals, not in a signal handler.
  [[nodiscard]] std::string current_activity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::comm
