/// Communicator: a group of ranks and the collectives they call together.
///
/// Notation: W ranks in the group, r this rank, S the bytes of a rank's own buffer as given by the
/// call. "Sends" counts what one rank sends to others (traffic()). Every collective is built from
/// one primitive, a direct exchange between all pairs (weft/comm/group.h); docs/collectives.md has
/// the formulas together with their derivation.
///
///   collective        exchanges  messages per rank   bytes sent per rank
///   all_to_all(_v)    1          W - 1               sum of send_bytes to others
///   all_gather(_v)    1          W - 1               (W - 1) S
///   gather_lent       1          W - 1               (W - 1) S
///   broadcast         1          root: W - 1         root: (W - 1) S, others: 0
///   barrier           1          W - 1               0
///   merge             1          W - 1               (W - 1) S
///   reduce_scatter    1          W - 1               (W - 1)/W S
///   all_reduce        2          2 (W - 1)           2 (W - 1)/W S (each slice a whole element)
///     up to 4 KiB     1          W - 1               (W - 1) S
///   split, duplicate  1          W - 1               24 (W - 1)
///   merge_to_first    2 h        rank 0: 0, others 2 8 + what its subtree has merged
///   share             2          as broadcast of 8 bytes, and of what is shared
///
/// Of more than 8 ranks broadcast, barrier, merge, split and the small all_reduce go along a tree
/// instead (weft/comm/rank_tree.h), in any form: with h = ⌈log8 W⌉ levels they are h exchanges
/// down, and but for broadcast h up before; a rank sends 7 messages at most in a level.
/// merge_to_first goes up that tree with any number of ranks.
///
/// That is the flat form. In the hierarchical one (duplicate() with a Form, where a job has several
/// hosts and any of them several ranks) an exchange is four: sizes and then lanes to the relays of
/// the host, one message per pair of hosts, and from the relays to the host's ranks
/// (weft/comm/relays.h); all_to_all, whose sizes all know, has the last three. What arrives is the
/// same, bit by bit. What a rank sends the same to all crosses once per pair of hosts. Sums by
/// OrderedAllReduce are hierarchical by themselves.
///
/// Copies of a byte: `local` 1, from the sender's memory to the receiver's, rows gathered and
/// scattered on the way, or none with exchange_lent(). `mpi`: those of MPI, and one at each end
/// where data does not lie in runs of 64 KiB and more. Large copies run on the context's pool.
/// Memory: plain pointers to host memory or memory of a CPU-like device. Calls are made inside a
/// stage and return when this rank's buffers may be reused.
/// Threads: one thread at a time per communicator; different communicators may be used at once.
/// Order: all ranks of a group call its collectives in the same order. Two groups that share ranks
/// must not be waited on in different orders by different ranks of one thread each.
/// Determinism: reductions add in a fixed order, up the tree over ranks of weft/base/parts.h; the
/// bits do not depend on timing, backend or size of the messages.
/// Traces: a context with a track records every exchange: group, sequence number, when the last
/// peer was there, bytes sent and those of them to other hosts, and over `mpi` when whose data
/// came. Errors: every call carries a
/// sequence number, the collective and its sizes. Ranks out of step get Error(kComm) naming both
/// ranks, collective, group and the numbers; a peer that does not arrive in time gives
/// Error(kTimeout) naming who is missing; an error of another rank is thrown here with its code,
/// message and origin_rank. All ranks of the world get the same error, and after it every call on
/// every communicator of the world throws it again. Sources: all-to-all and ring volumes, Thakur,
/// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005; the
/// ordered sum, docs/numerics.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/activity.h"
#include "weft/comm/carrier.h"
#include "weft/comm/collective.h"
#include "weft/comm/peer_lanes.h"
#include "weft/tensor/device.h"
#include "weft/trace/recorder.h"

namespace weft::comm {

class Group;
class Relays;
struct Copy;
struct Exchange;
enum class Payload : std::uint8_t;

/// Operands of all_to_all_v: peer-major and contiguous; the counts are in bytes, one per rank.
/// send_bytes[p] here equals recv_bytes[r] on rank p.
struct AllToAllV {
  const void* send = nullptr;
  std::span<const std::int64_t> send_bytes;  ///< [W]
  void* recv = nullptr;
  std::span<const std::int64_t> recv_bytes;  ///< [W]
};

/// Operands of all_gather_v: recv is rank-major and contiguous. recv_bytes[r] == send_bytes. `send`
/// may be this rank's place in recv.
struct AllGatherV {
  const void* send = nullptr;
  std::int64_t send_bytes = 0;
  void* recv = nullptr;
  std::span<const std::int64_t> recv_bytes;  ///< [W]
};

/// One rank's end of a group. It owns the group; contracts of all calls are above.
class Communicator {
 public:
  /// Made by a backend (weft/comm/local, weft/comm/mpi), split() and duplicate().
  explicit Communicator(std::unique_ptr<Group> group);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return size_; }

  /// Returns the group's name in messages and traces.
  [[nodiscard]] const std::string& name() const;

  /// The world's number of rank `rank` of this group.
  [[nodiscard]] int world_rank(int rank) const;

  /// The host of rank `rank`: equal numbers where ranks share memory.
  [[nodiscard]] int host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  /// Buffers of send and recv must not overlap, in this and the following collectives, unless said.
  void all_to_all_v(Context& ctx, const AllToAllV& operands);

  /// send and recv: W blocks of `bytes_per_peer`.
  void all_to_all(Context& ctx, const void* send, void* recv, std::int64_t bytes_per_peer);

  /// all_to_all_v over lists of pieces, for data that does not lie contiguously: send[p] and
  /// recv[p] are the lanes to and from rank p, both [W].
  void exchange(Context& ctx, std::span<const Lane> send, std::span<const Lane> recv);

  /// exchange() from every rank to every rank, whatever the form.
  void exchange_directly(Context& ctx, std::span<const Lane> send, std::span<const Lane> recv);

  /// Does the same at the cost of the lanes in use instead of O(W). Errors are those of exchange().
  void exchange_directly(Context& ctx, const PeerLanes& lanes);

  /// Whether exchange_lent() shows the senders' own memory. Equal on all ranks.
  [[nodiscard]] bool lends() const;

  /// exchange() that leaves what arrives where it is. `read` is called once, by this thread, with
  /// the lanes [W] that have come; until it returns on every rank no sender's memory may be
  /// written. A lane's pieces have the sizes of recv[p]'s; they lie in the sender's memory, as its
  /// lane says, where lends(), and in recv[p], which then needs no memory, where not. What a rank
  /// sends to itself is send[r]. An exception of `read` is an error of this rank.
  void exchange_lent(Context& ctx,
                     std::span<const Lane> send,
                     std::span<const Lane> recv,
                     LaneReader read);

  /// exchange_lent() of one lane, which goes to all ranks: an all_gather of pieces. recv[r] and
  /// what a rank sends to itself are not looked at. In the hierarchical form it crosses once for
  /// each pair of hosts.
  void gather_lent(Context& ctx, const Lane& own, std::span<const Lane> recv, LaneReader read);

  /// recv: W blocks of `bytes`. `send` may be this rank's block of recv.
  void all_gather(Context& ctx, const void* send, void* recv, std::int64_t bytes);
  void all_gather_v(Context& ctx, const AllGatherV& operands);

  /// Copies `bytes` at `data` of rank `root` to `data` of every other rank. `bytes` and `root` are
  /// equal on all ranks.
  void broadcast(Context& ctx, void* data, std::int64_t bytes, int root);

  /// Returns after all ranks have called it.
  void barrier(Context& ctx);

  /// Merges the blocks of all ranks in the order of ranks, and leaves the result in `block` on all.
  /// `merger` is associative, and does not throw. The size is equal on all ranks.
  void merge(Context& ctx, std::span<std::byte> block, BlockMerger merger);

  /// Merges the byte strings of all ranks, which may have different lengths, in the order of ranks.
  /// `merger` is associative; where it throws, that is this rank's error. Returns the result on
  /// rank 0, and what its subtree had on others. Memory: the strings of 8 subtrees at a time.
  std::vector<std::byte> merge_to_first(Context& ctx,
                                        std::vector<std::byte> own,
                                        const BytesMerger& merger);

  /// broadcast() of bytes of which only `root` knows how many there are.
  void share(Context& ctx, std::vector<std::byte>& bytes, int root);
  void share(Context& ctx, std::string& text, int root);

  /// In place. kMin and kMax of floating values: the second operand wins where a comparison with
  /// NaN fails, so exclude NaN before.
  void all_reduce(Context& ctx, float* data, std::int64_t count, ReduceOp op = ReduceOp::kSum);
  void all_reduce(Context& ctx, double* data, std::int64_t count, ReduceOp op = ReduceOp::kSum);
  void all_reduce(Context& ctx,
                  std::int64_t* data,
                  std::int64_t count,
                  ReduceOp op = ReduceOp::kSum);

  /// send: [count]; recv: this rank's slice piece(count, W, r), which may have any place outside
  /// send.
  void reduce_scatter(Context& ctx,
                      const float* send,
                      float* recv,
                      std::int64_t count,
                      ReduceOp op = ReduceOp::kSum);
  void reduce_scatter(Context& ctx,
                      const double* send,
                      double* recv,
                      std::int64_t count,
                      ReduceOp op = ReduceOp::kSum);
  void reduce_scatter(Context& ctx,
                      const std::int64_t* send,
                      std::int64_t* recv,
                      std::int64_t count,
                      ReduceOp op = ReduceOp::kSum);

  /// The same ranks with a communicator of their own. Collective. Groups that share ranks are made
  /// one after the other, in the same order on all ranks. `name` is equal on all ranks.
  std::unique_ptr<Communicator> duplicate(const std::string& name);

  /// The same with a form. kHierarchical: two groups, the second of the host's ranks; where no
  /// stage inside hosts has anything to gather (one host, or one rank on each) it is flat.
  std::unique_ptr<Communicator> duplicate(const std::string& name, Form form);

  [[nodiscard]] Form form() const {
    return host_group_ == nullptr ? Form::kFlat : Form::kHierarchical;
  }

  /// Of the hierarchical form: the ranks of this rank's host, in ascending order, for collectives
  /// that are hierarchical by themselves. Null where flat. Used by the same thread.
  [[nodiscard]] Communicator* host_group() { return host_group_.get(); }

  /// The ranks of equal `color`, ordered by (key, rank). color < 0: in no group, gives null.
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name);

  /// Tells every rank of the world: their waits throw this error with its origin_rank (this rank of
  /// the world where it has none). Returns at once; the first error of the world stays. From any
  /// thread.
  void abort(const Error& error) noexcept;

  /// Throws the world's error if there is one; for loops that do not communicate.
  void check() const;

  /// How long an exchange waits for ranks that neither send nor say that they are alive.
  [[nodiscard]] double timeout_s() const;

  /// What carries messages between ranks: of `mpi` what it found when it started, and never empty;
  /// of `local` empty.
  [[nodiscard]] Carrier carrier() const;

  /// Tells every rank of the world that this one is alive and does work of its own: their waits
  /// begin anew. Returns at once, from any thread. Not more often than a few times a second: over
  /// `mpi` it is a message to every rank. Who works calls it through comm::WorkWatch.
  void say_alive() noexcept;

  /// What the ranks of this process are doing, for WorkWatch to add to it.
  [[nodiscard]] ActivityLog& activity_log();

  /// What is said beside the ranks that did not come to the end, where the backend ends the job for
  /// that. Of the whole world; the last call counts. `text` may be called by another thread at any
  /// time until the world ends, so it holds values.
  void explain_lost_ranks(LostRanksText text);

  /// What this rank has sent through this communicator, its group of the host included.
  [[nodiscard]] Traffic traffic() const;

 private:
  friend class Relays;

  struct Reduction {
    Collective collective;
    std::int64_t count;
    ReduceOp op;
  };

  /// A call that goes along the tree over ranks: what its exchanges say in their stamps.
  struct TreeCall {
    Collective collective;
    std::uint64_t arguments;
  };

  [[nodiscard]] bool has_tree() const;
  template <typename Combine>
  void up_tree(Context& ctx,
               const TreeCall& call,
               std::byte* blocks,
               std::int64_t bytes,
               const Combine& combine);
  void down_tree(Context& ctx, const TreeCall& call, void* data, std::int64_t bytes, int root);
  void gather_along_tree(Context& ctx,
                         const TreeCall& call,
                         std::span<const std::byte> own,
                         std::span<std::byte> all);
  Stamp next_stamp(Collective collective, std::int64_t size, std::uint64_t arguments);
  void run(const Context& ctx, const Exchange& call);
  void run_directly(const Context& ctx, Exchange call);
  void copy_arrived(const Context& ctx, std::span<const Lane> arrived, std::span<const Lane> recv);
  void copy(const Context& ctx,
            const Stamp& stamp,
            std::span<const Lane> send,
            std::span<const Lane> recv,
            Payload payload);
  void copy(const Context& ctx, const Stamp& stamp, const PeerLanes& lanes, Payload payload);
  void copy_directly(const Context& ctx,
                     const Stamp& stamp,
                     std::span<const Lane> send,
                     std::span<const Lane> recv);
  void copy_directly(const Context& ctx, const Stamp& stamp, const PeerLanes& lanes);
  std::unique_ptr<Communicator> split_as(const std::string& name,
                                         int color,
                                         int key,
                                         const std::string& what);
  void use_relays();
  void check_lanes(std::span<const Lane> send, std::span<const Lane> recv) const;
  void send_to(int rank, const void* data, std::int64_t bytes);
  void receive_from(int rank, void* data, std::int64_t bytes);
  template <typename T>
  void reduce_slices(Context& ctx, const T* data, T* rows, const Reduction& reduction);
  template <typename T>
  void all_reduce_any(Context& ctx, T* data, std::int64_t count, ReduceOp op);
  template <typename T>
  void reduce_scatter_any(Context& ctx, const T* send, T* recv, std::int64_t count, ReduceOp op);
  std::byte* scratch(std::int64_t bytes);

  std::unique_ptr<Group> group_;
  int rank_;
  int size_;
  std::vector<int> hosts_;  // [W]
  ActivityLog::Slot activity_;
  std::atomic<bool> busy_ = false;  ///< finds two threads that use one communicator
  std::uint64_t sequence_ = 0;
  Traffic traffic_;
  // Reused by every call, so that a call allocates nothing.
  std::vector<Piece> send_pieces_;  // [W]
  std::vector<Piece> recv_pieces_;  // [W]
  PeerLanes lanes_;
  std::vector<Lane> arrived_of_peers_;    // of a call that lists its peers, theirs alone
  std::vector<Lane> recv_of_peers_;       // where these go
  std::vector<trace::Arrival> arrivals_;  // [W], where something is traced
  std::vector<Copy> copies_;
  std::unique_ptr<std::byte[]> scratch_;
  std::int64_t scratch_bytes_ = 0;
  std::unique_ptr<Communicator> host_group_;  // of the hierarchical form
  std::unique_ptr<Relays> relays_;
};

}  // namespace weft::comm
