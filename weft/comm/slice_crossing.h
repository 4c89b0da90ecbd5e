/// Private to comm/: how the hosts' partial sums of slices reach their owners in a hierarchical sum
/// (weft/comm/hierarchical_reduce.cc), and how the sums come back.
///
/// Notation: H hosts, g ranks on this one; slice s is owned by rank s; a rank's shares are its own
/// slice and those of other hosts' ranks whose deputy it is. Directly:
///
///   combine   across        a deputy sends the host's partial sums of a slice to its owner
///   return    across        the owner sends the sum to its deputies
///   spread    in the host   each rank sends its shares of the sum to the others
///
/// which are H - 1 messages of a rank in each exchange between hosts of equally many ranks. Where
/// relays carry slices, the deputies of all slices of a host are one rank, the relay to that host:
///
///   combine   across        the relay to a host sends the relay there the partial sums of all its
///                           ranks' slices
///   pass on   in the host   which sends each rank what is of its slice
///   share     in the host   each rank sends its own sum to the others
///   return    across        the relay to a host sends the relay there the sums of its host's
///   slices spread    in the host   which sends them to the host's others
///
/// which are at most ceil((H - 1) / g) or g - 1 messages in an exchange. In both the same bytes
/// cross between hosts, but for the flags of what is present, which go once per slice or once per
/// message. Who is a deputy decides no bit: it forwards bytes, or encodes the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/comm/collective.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::comm {

/// A host's partial sums as the owner of a slice gets them.
struct HostTerms {
  std::size_t count = 0;
  std::vector<std::uint8_t> present;
  std::byte* arrived =
      nullptr;  ///< [count][own slice] where those of another host come, as one run
};

/// [ranks of `host`] the shares of each: the own slice first, then others, ascending. O(g W).
std::vector<std::vector<int>> shares_of_host(const HostLayout& layout, int host, Crossing crossing);

class SliceCrossing {
 public:
  /// Where this rank is. What is referred to outlives the crossing.
  struct Setting {
    Communicator& all;
    Communicator& inside;  ///< of the ranks of this rank's host
    const HostLayout& layout;
    const std::vector<std::vector<int>>& shares;  ///< of this rank's host
    std::vector<std::int64_t> slice_bytes;        ///< [ranks here] of their slices as they travel
  };

  virtual ~SliceCrossing() = default;

  /// Collective. Sends the host's partial sums, of each of this rank's shares as `sums` has them
  /// (what it has of the own slice stays), and which of them are present; fills in both for every
  /// other host in `hosts`.
  virtual void combine(Context& ctx, std::span<const Lane> sums, std::span<HostTerms> hosts) = 0;

  /// Collective. `sums`: [ranks] where the sum of each slice lies, in the end on all ranks, as it
  /// travels. Before, the rank has its own.
  virtual void send_back(Context& ctx, std::span<const Piece> sums) = 0;
};

std::unique_ptr<SliceCrossing> make_direct_crossing(const SliceCrossing::Setting& setting);

/// `passed`: as layout::ReduceBuffers::passed has it.
std::unique_ptr<SliceCrossing> make_relayed_crossing(const SliceCrossing::Setting& setting,
                                                     Buffer passed);

}  // namespace weft::comm
