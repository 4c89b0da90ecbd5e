/// Paths: the five paths of slots (slot_path.h) of one rank, and which of them a slot takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/sharding/paths/slot_path.h"
#include "weft/spec/config.h"

namespace weft::sharding {

class Paths {
 public:
  /// `routing` outlives it.
  Paths(const spec::Config& config, const Routing& routing, std::int64_t rank);

  /// The path between the slot's server and the samples of `source`.
  [[nodiscard]] const SlotPath& of(const SlotAddress& address, std::int64_t source) const {
    return *paths_[static_cast<std::size_t>(routing_.path(address, source))];
  }

  /// Returns the path that all slots of a kind take between different ranks.
  [[nodiscard]] const SlotPath& between_ranks(const SlotKind& slot) const {
    return *paths_[static_cast<std::size_t>(slot.path)];
  }

  /// The path that reads the ids of a feature of this rank's samples.
  [[nodiscard]] const SlotPath& of_feature(std::int64_t feature) const {
    return *features_[static_cast<std::size_t>(feature)];
  }

  /// All of them, in the order in which they read a batch.
  [[nodiscard]] std::span<const std::unique_ptr<SlotPath>> all() const { return paths_; }

  /// Returns what a micro-batch has of a block that this rank serves: SlotPath::served_cut(), or,
  /// where batches are not cut, all of it, without a call.
  [[nodiscard]] BlockCut served_cut(const InputStep& input,
                                    const ServedBlock& of,
                                    std::int64_t cut) const {
    const IncomingBlock& block = of.block;
    return routing_.micro_batches.count() > 1
               ? this->of(of.address, of.source).served_cut(input, of, cut)
               : BlockCut{.bags = {0, block.lookup.bags},
                          .vectors = {0, block.vectors},
                          .gradients = {0, block.gradients}};
  }

  [[nodiscard]] const Routing& routing() const { return routing_; }

  [[nodiscard]] std::int64_t rank() const { return rank_; }

  [[nodiscard]] const RunParts& runs() const { return runs_; }

  [[nodiscard]] const DrawKeys& keys() const { return keys_; }

 private:
  const Routing& routing_;
  std::int64_t rank_;
  RunParts runs_;
  DrawKeys keys_;
  std::array<std::unique_ptr<SlotPath>, layout::kNumPaths> paths_;  // by Path
  std::vector<const SlotPath*> features_;                           // [F]
};

}  // namespace weft::sharding
