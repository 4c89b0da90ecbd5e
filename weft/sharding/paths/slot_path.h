/// SlotPath: what is done for the slots that take one path, from the ids of a batch to its
/// gradients. Routing says which path a slot takes (Routing::path), once; the exchanges of counts,
/// ids, vectors and gradients go through slots in the order of the wire, call the verbs below, and
/// know no path by name.
///
///   in_place.cc      a rank serves itself whole bags: nothing travels
///   whole_bags.cc    all ids of a feature go to each of its shards: tables whose rows are not cut
///   split_bags.cc    each id goes to the cut of rows that has it; bags are added at the sample
///   unique_rows_path.cc  a table's rows are asked for, each once; bags are added at the sample
///   hot_rows_path.cc     the rows that every rank has a copy of: one more cut of the two before
///
/// A sequence is whole bags with a vector per id in place of one per bag.
///
/// Ask         ids are read in host memory, in these calls: begin(); read() for runs of bags, as
///             tasks; lay_out(), when every bag has been read; point(), when buffers have their
///             sizes; fill() for runs of bags, as tasks; finish(); add_pieces().
/// Serve       expect_block() and add_expected(), when the counts are known; unpack() as tasks.
/// Vectors     between the exchanges a path says where vectors and gradients lie.
/// State       a path is const and shared by all batches; what a batch has is in AskedIds,
///             ServedIds, InputStep and OutputStep.
/// Threads     read(), fill() and unpack() run as tasks of a pool.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"
#include "weft/sharding/asked_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/served_ids.h"
#include "weft/sharding/vector_draws.h"
#include "weft/sharding/vector_wire.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

struct InputStep;
struct OutputStep;
class SlotPath;

/// What comes for a block of a slot from one rank.
struct ArrivedBlock {
  const Slot* slot = nullptr;
  std::int64_t source = 0;
  int world_rank = 0;                        ///< of the source, for messages
  SlotCounts counts = {};                    ///< as announced
  std::span<const comm::Piece> pieces = {};  ///< once it has arrived
};

/// The part of a block from one rank of a slot that is of one micro-batch, in the block's order.
struct BlockCut {
  Range bags;  ///< of block.lookup
  Range vectors, gradients;
};

/// The vectors and gradients of a slot that this rank asks which are of one micro-batch, by number
/// (AskedSlot::rows).
struct AskedCut {
  Range vectors, gradients;
};

/// What is to be done once vectors have come. Static, made once from all slots.
struct VectorWork {
  /// What one path does for one slot.
  struct One {
    const SlotPath* path = nullptr;
    SlotAddress address;
  };

  std::vector<One> bags;    ///< columns of pooled features
  std::vector<One> copies;  ///< slots whose vectors are copied one by one
  /// Slots whose gradients are read where the caller has them, and rounded there if gradients are
  /// encoded: columns of features, each once.
  std::vector<One> own_gradients;
};

class SlotPath {
 public:
  /// What paths share and do not change. All of it outlives them.
  struct Parts {
    const Routing& routing;
    const RunParts& runs;
    const DrawKeys& keys;
    std::int64_t rank = 0;
  };

  SlotPath(const Parts& parts, Path path)
      : routing_(parts.routing),
        runs_(parts.runs),
        keys_(parts.keys),
        rank_(parts.rank),
        path_(path) {}

  virtual ~SlotPath() = default;
  SlotPath(const SlotPath&) = delete;
  SlotPath& operator=(const SlotPath&) = delete;

  /// Counts that a task of a feature keeps: its cuts of rows.
  [[nodiscard]] virtual std::int64_t cuts(std::int64_t /*feature*/) const { return 1; }

  // Ids, at the rank that asks.

  /// Begins a batch: lays out what its shape alone tells.
  virtual void begin(AskedIds& /*asked*/) const {}

  /// Reads a run of bags, whose ids have been checked.
  virtual void read(AskedIds& /*asked*/, const BagTask& /*task*/) const {}

  /// Lays out what the bags have been found to need.
  virtual void lay_out(ThreadPool& /*pool*/, AskedIds& /*asked*/) const {}

  /// Takes pointers into buffers that have their sizes.
  virtual void point(AskedIds& /*asked*/) const {}

  /// Reads a run of bags for the second time, of features that lay_out() has marked.
  virtual void fill(AskedIds& /*asked*/, const BagTask& /*task*/) const {}

  /// Makes of what has been filled what travels.
  virtual void finish(ThreadPool& /*pool*/, AskedIds& /*asked*/) const {}

  /// Appends what is sent to the server of a slot that has this place (AskedIds::place()); nothing
  /// but empty pieces for a slot without ids.
  virtual void add_pieces(const AskedIds& /*asked*/,
                          const SlotAddress& /*address*/,
                          std::int64_t /*place*/,
                          SlotPieces& /*pieces*/) const {}

  /// Returns the bytes of what a slot like this one sends from `source`, or is sent: of the pieces
  /// of add_pieces() and of add_expected().
  [[nodiscard]] virtual std::int64_t section_bytes(const SlotKind& /*slot*/,
                                                   const SlotCounts& /*counts*/,
                                                   std::int64_t /*source*/) const {
    return 0;
  }

  // Ids, at the rank that serves.

  /// Takes room for a block of another rank.
  virtual void expect_block(ServedIds& /*served*/,
                            const ArrivedBlock& /*from*/,
                            IncomingBlock& /*block*/) const {}

  /// Appends the block's pieces, which have sizes and no memory.
  virtual void add_expected(const ArrivedBlock& /*from*/, SlotPieces& /*pieces*/) const {}

  /// Throws Error(kComm) naming the sender and the slot where a block's pieces have not come with
  /// the sizes of `expected`.
  void check_pieces(const ArrivedBlock& from, std::span<const comm::Piece> expected) const;

  /// Number of tasks that unpack a block.
  [[nodiscard]] virtual std::int64_t unpack_tasks(const ArrivedBlock& /*from*/) const { return 0; }

  /// Runs one of them. Throws Error(kComm) naming the sender and the slot where bags or rows are
  /// not what was announced.
  virtual void unpack(ServedIds& /*served*/,
                      const ArrivedBlock& /*from*/,
                      std::int64_t /*task*/,
                      IncomingBlock& /*block*/) const {}

  /// Returns the block of this rank's own samples of a slot that it serves.
  [[nodiscard]] virtual IncomingBlock own_block(const InputStep& input,
                                                const SlotAddress& address) const = 0;

  /// Places what is looked up where samples are, besides blocks of slots.
  virtual void place_own_features(InputStep& /*input*/) const {}

  // Vectors and gradients.

  /// The vectors of a slot for the samples of `source`: what of them moves, and where it needs
  /// room.
  [[nodiscard]] layout::PathBlock block(const SlotAddress& address, std::int64_t source) const {
    const SlotKind& slot = routing_.kind(address);
    return {.path = path_ == Path::kHotRows ? slot.tail : path_,
            .own = routing_.served_by(address, source),
            .sequence = slot.sequence};
  }

  /// What a micro-batch has of a block that this rank serves, and of a slot that it asks, `asked`.
  /// Host memory is read.
  [[nodiscard]] virtual BlockCut served_cut(const InputStep& input,
                                            const ServedBlock& of,
                                            std::int64_t cut) const = 0;
  [[nodiscard]] virtual AskedCut asked_cut(const InputStep& input,
                                           const SlotAddress& address,
                                           const AskedSlot& asked,
                                           std::int64_t cut) const = 0;

  /// Lists what this rank does with the vectors of a slot that it asks.
  virtual void list_work(const SlotAddress& address, VectorWork& work) const = 0;

  /// Sizes what the path keeps of the batch's vectors.
  virtual void prepare(const InputStep& /*input*/, OutputStep& /*output*/) const {}

  /// Where this rank's vectors of a slot belong; vector i at place AskedSlot::rows[i].
  [[nodiscard]] virtual VectorPlace vectors_to(const OutputStep& output,
                                               const SlotKind& slot) const;
  /// Where their gradients come from, at AskedSlot::gradient_rows[i].
  [[nodiscard]] virtual VectorPlace gradients_from(const OutputStep& output,
                                                   const SlotKind& slot) const;

  /// Lists how a micro-batch's bags of a slot in VectorWork::bags are made of the vectors that have
  /// come.
  virtual void list_assembly(const InputStep& /*input*/,
                             OutputStep& /*output*/,
                             const SlotAddress& /*address*/,
                             std::int64_t /*cut*/) const {}

  /// Ends the way forward of a micro-batch, once its vectors are here. The senders wait no longer.
  virtual void pool(Context& /*ctx*/,
                    const InputStep& /*input*/,
                    OutputStep& /*output*/,
                    std::int64_t /*cut*/) const {}

  /// Sorts what gradients will be summed from before they travel; needs no gradient.
  virtual void coalesce(Context& /*ctx*/,
                        const InputStep& /*input*/,
                        OutputStep& /*output*/) const {}

  /// Sums them, once those of all micro-batches are there. Runs what coalesce() does where that has
  /// been left out.
  virtual void sum_gradients(Context& /*ctx*/,
                             const InputStep& /*input*/,
                             OutputStep& /*output*/) const {}

  /// Whose random words the vectors of a served block get (vector_draws.h).
  [[nodiscard]] virtual VectorDraws vector_draws(const InputStep& input,
                                                 const SlotAddress& address,
                                                 std::int64_t source) const = 0;
  /// Of the gradients that are sent to a slot's server; of those read in place all bags or ids.
  [[nodiscard]] virtual VectorDraws gradient_draws(const InputStep& input,
                                                   const SlotAddress& address) const = 0;
  [[nodiscard]] VectorDraws own_gradient_draws(const InputStep& input, const SlotKind& slot) const;

 protected:
  [[nodiscard]] const FeatureRoute& route(std::int64_t feature) const {
    return routing_.features[at(feature)];
  }

  /// Whether a micro-batch is the last of its batch.
  [[nodiscard]] bool is_last(std::int64_t cut) const {
    return cut + 1 == routing_.micro_batches.count();
  }

  /// The bags of a block of whole batches, and their vectors: what a micro-batch of this rank has
  /// of its own samples where all bags are there, empty ones too.
  [[nodiscard]] BlockCut cut_of_all_bags(const InputStep& input,
                                         const IncomingBlock& block,
                                         bool sequence,
                                         std::int64_t cut) const;

  /// Who sent a block of what, for messages.
  [[nodiscard]] std::string named(const ArrivedBlock& from) const;

  /// Writes ids `ids` of a block, its second piece, as int64. Throws Error(kComm) naming one that
  /// is outside the slot's rows.
  void widen_ids(const ArrivedBlock& from, Range ids, std::int64_t* out) const;

  /// Whether this rank's own samples are of `source`.
  [[nodiscard]] bool is_own(std::int64_t source) const { return source == rank_; }

  const Routing& routing_;
  const RunParts& runs_;
  const DrawKeys& keys_;
  const std::int64_t rank_;
  const Path path_;
};

}  // namespace weft::sharding
