/// One rank of many, alone on its processor: what arrives at it is what arrived when all ran.
///
/// A tape is made of a rank while its job runs, and keeps what its peers sent it in every exchange
/// of every group. A job is a function of data, seed and configuration, so when the rank runs again
/// alone its peers would send the same, and the tape gives that. So its processor time is that of a
/// rank whose threads, caches and memory no other rank uses, while it does all the work that it did
/// among its peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/transport_time.h"
#include "weft/comm/collective.h"
#include "weft/comm/communicator.h"

namespace weft::bench {

/// TapedExchange keeps what arrived at a rank in one exchange. Pieces lie as their sender's did: in
/// the order of their addresses, and side by side where they were. What lies between the rows of a
/// piece is kept too, so nobody may write there meanwhile.
class TapedExchange {
 public:
  /// Copies `lanes` [W], which have arrived at rank `self`; its own is left out.
  TapedExchange(const comm::Stamp& stamp, std::span<const comm::Lane> lanes, std::size_t self);
  TapedExchange(const TapedExchange&) = delete;  // lanes point into it
  TapedExchange& operator=(const TapedExchange&) = delete;

  [[nodiscard]] const comm::Stamp& stamp() const { return stamp_; }

  [[nodiscard]] std::span<const comm::Lane> lanes() const { return lanes_; }

  /// Returns how many of these are not silent.
  [[nodiscard]] std::int64_t in_use() const { return in_use_; }

 private:
  comm::Stamp stamp_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<std::int32_t>> rows_;  ///< of pieces that have any
  std::vector<comm::Piece> pieces_;
  std::vector<comm::Lane> lanes_;  ///< [W]
  std::int64_t in_use_ = 0;
};

/// GroupTape keeps, in memory, what arrived at a rank in a group and in those that were made of it.
struct GroupTape {
  int rank = 0;
  std::string name;
  std::vector<int> world_ranks;  ///< [W]
  std::vector<int> hosts;        ///< [W]
  bool lends = false;
  std::vector<std::unique_ptr<TapedExchange>> exchanges;
  std::vector<std::unique_ptr<GroupTape>> groups;  ///< in the order in which they were made
};

/// Returns `group`, and keeps on `tape`, which outlives it, all that arrives there. The group is
/// one of an imitated world: what backends alone know, as what carries messages, is not passed on.
std::unique_ptr<comm::Group> taped(std::unique_ptr<comm::Group> group, GroupTape& tape);

/// Runs `body` in this thread as the rank whose tape it is, which must make the same calls as when
/// the tape was made. Throws Error(kComm) where it makes another one. `time` takes the seconds of
/// a processor that giving out the tape takes.
void run_replayed(const GroupTape& tape,
                  TransportTime& time,
                  const std::function<void(comm::Communicator& world)>& body);

}  // namespace weft::bench
