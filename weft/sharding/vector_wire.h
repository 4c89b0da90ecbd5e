/// Private to sharding/: an exchange of encoded vectors of one batch in flight
/// (weft/kernels/codec.h). A vector is encoded once, where it was made, and decoded to where it is
/// needed; what a rank has for itself goes the same way or, in place, through encoder and decoder,
/// so that a vector does not depend on who serves it.
///
/// Wire       rank to rank: blocks in the order in which they were added, which sender and receiver
///            share; of a block its encoded vectors, without gaps.
/// Memory     what is sent, and over `mpi` what is received, encoded; reused from step to step.
/// Threads    encodes in one operation, and decodes in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/kernels/codec.h"
#include "weft/layout/feature_vectors.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/vector_draws.h"
#include "weft/spec/config.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// Vectors of one block: vector i is at data + i * stride (elements).
struct VectorPlace {
  float* data = nullptr;
  std::int64_t stride = 0;

  /// The vectors from the one with this number on.
  [[nodiscard]] VectorPlace from(std::int64_t vector) const {
    return {row_at(data, stride, vector), stride};
  }
};

class VectorWire {
 public:
  /// Vectors of a slot on their way to or from `peer`; vector i is row rows[i] of `place`, or i.
  struct Block {
    const SlotKind* slot = nullptr;
    std::int64_t peer = 0;
    std::int64_t count = 0;
    VectorPlace place = {};
    const std::int32_t* rows = nullptr;
    VectorDraws draws = {};  ///< of what is encoded

    /// Some of its vectors, in their order.
    [[nodiscard]] Block part(const Range& vectors) const;
  };

  VectorWire(const spec::Config& config, CodecFormat format, std::int64_t ranks, Device& device);

  /// Whether vectors are encoded; where not, nothing here is used.
  [[nodiscard]] bool is_on() const { return codec_.format != CodecFormat::kFp32; }

  /// Begins the list of an exchange of `step`.
  void clear(std::int64_t step);

  /// Peers ascend.
  void add_outgoing(const Block& block) { outgoing_.add(block, codec_); }

  void add_incoming(const Block& block) { incoming_.add(block, codec_); }

  /// Rounds the block in place in exchange(), as if it had been sent and received. Its peer is this
  /// rank.
  void add_in_place(const Block& block) { in_place_.add(block, codec_); }

  /// Encodes, sends, decodes. Collective.
  void exchange(Context& ctx, comm::Communicator& comm);

  /// Begins to count the clips of another batch.
  void begin_batch();

  /// Takes the counts of the batch in hand away from those of all batches.
  void forget_batch() { clips_ = before_; }

  /// Values that this rank has clipped or found non-finite in vectors of a table: of the batch in
  /// hand, and of all batches.
  [[nodiscard]] kernels::CodecClips batch_clips(std::int64_t table) const;
  [[nodiscard]] kernels::CodecClips clips(std::int64_t table) const;

 private:
  /// Blocks, and where each lies on the wire.
  struct Blocks {
    struct Entry {
      Block block;
      std::int64_t wire = 0;  ///< offset of its first byte in all that is in the list
    };

    void add(const Block& block, const kernels::Codec& codec);

    std::vector<Entry> entries;
    std::int64_t bytes = 0;
  };

  [[nodiscard]] layout::WireBytes<std::int64_t> wire_bytes() const {
    return {.outgoing = outgoing_.bytes, .incoming = incoming_.bytes, .in_place = in_place_.bytes};
  }

  void describe_lanes(comm::Communicator& comm);
  void add_encodes(const Blocks& blocks, std::byte* wire);
  void add_decode(const Block& block, const std::byte* wire);

  kernels::Codec codec_;
  std::uint64_t step_ = 0;
  std::vector<kernels::CodecClips> clips_;   // [tables] of the batch in hand, added to atomically
  std::vector<kernels::CodecClips> before_;  // [tables] of those before
  Blocks outgoing_, incoming_, in_place_;
  Buffer sent_, received_;                          // sent_: outgoing, then in place
  std::vector<comm::Piece> send_runs_, recv_runs_;  // [W], where it is on
  std::vector<comm::Lane> send_, recv_;
  std::vector<kernels::EncodeJob> encodes_;  // of an exchange
  std::vector<kernels::DecodeJob> decodes_;
};

}  // namespace weft::sharding
