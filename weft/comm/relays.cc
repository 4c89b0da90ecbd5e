#include "weft/comm/relays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/comm/communicator.h"
#include "weft/comm/messages.h"
#include "weft/layout/relays.h"

namespace weft::comm {
namespace {

constexpr std::int64_t kSilent = -1;  // the size of a silent lane

std::int64_t size_or_silent(const Lane& lane) {
  return lane.silent ? kSilent : lane.bytes();
}

/// The lanes that a message between hosts carries.
std::int64_t lane_bytes(const std::vector<std::int64_t>& sizes) {
  std::int64_t bytes = 0;
  for (const std::int64_t size : sizes) {
    bytes += std::max<std::int64_t>(size, 0);
  }
  return bytes;
}

std::int64_t message_bytes(const std::vector<std::int64_t>& sizes) {
  return layout::message_bytes(lane_bytes(sizes));
}

bool is_silent(const std::vector<std::int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size == kSilent; });
}

std::uint64_t check_word(const std::vector<std::int64_t>& sizes) {
  return hash_bytes(std::as_bytes(std::span(sizes)));
}

Piece run_of(std::vector<std::int64_t>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size() * sizeof(std::int64_t))};
}

bool is_one_run(const Lane& lane) {
  return lane.pieces.size() == 1 && lane.pieces.front().row_bytes == 0;
}

}  // namespace

void LaneList::clear() {
  pieces_.clear();
  begin_.clear();
}

std::span<const Lane> LaneList::lanes() {
  lanes_.clear();
  for (std::size_t i = 0; i < begin_.size(); ++i) {
    const std::size_t end = i + 1 < begin_.size() ? begin_[i + 1] : pieces_.size();
    lanes_.push_back({.pieces = std::span(pieces_).subspan(begin_[i], end - begin_[i]),
                      .silent = begin_[i] == end});
  }
  return lanes_;
}

Relays::Relays(Communicator& all, Communicator& host, HostLayout layout)
    : all_(all),
      host_(host),
      layout_(std::move(layout)),
      self_host_(layout_.host(all.rank())),
      sizes_(at(layout_.hosts())),
      out_(at(layout_.ranks())),
      in_(at(layout_.ranks())),
      arrived_(at(layout_.ranks())) {
  for (int h = 0; h < layout_.hosts(); ++h) {
    if (h == self_host_) {
      continue;
    }
    const std::size_t there = layout_.ranks_of(h).size();
    sizes_[at(h)].sent.resize(there);
    sizes_[at(h)].received.resize(there);
    if (layout_.relay(self_host_, h) == all.rank()) {
      crossings_.push_back({.host = h, .out_sizes = {}, .in_sizes = {}});
      for (std::size_t i = 0; i < layout_.ranks_of(self_host_).size(); ++i) {
        local_sizes_.push_back(sizes_[at(h)]);
      }
    }
  }
}

void Relays::exchange(const Context& ctx, const Exchange& call) {
  const auto self = at(all_.rank());
  check_own_lane(all_.name(), call.stamp, call.send[self], call.recv[self]);
  share_sizes(ctx, call);
  collect_sizes(call.payload);
  pack(ctx, call);
  reserve_crossings();
  gather(ctx, call);
  cross(ctx, call);
  scatter(ctx, call);
  unpack(ctx, call);
  std::copy(call.recv.begin(), call.recv.end(), arrived_.begin());
  arrived_[self] = call.send[self];
  call.read(arrived_);
}

/// So that ranks of a host that are out of step are told what they were about to do.
Stamp Relays::stage_stamp(const Exchange& call) {
  const std::uint64_t arguments =
      hash_combine(call.stamp.arguments, static_cast<std::uint64_t>(call.stamp.size));
  return host_.next_stamp(call.stamp.collective, -1, arguments);
}

void Relays::share_sizes(const Context& ctx, const Exchange& call) {
  send_.clear();
  recv_.clear();
  for (int h = 0; h < layout_.hosts(); ++h) {
    SizesOf& own = sizes_[at(h)];
    for (std::size_t i = 0; i < own.sent.size(); ++i) {
      const auto peer = at(layout_.ranks_of(h)[i]);
      own.sent[i] = size_or_silent(call.send[peer]);
      own.received[i] = size_or_silent(call.recv[peer]);
    }
  }
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  for (std::size_t i = 0; i < here.size(); ++i) {
    send_.next();
    for (int h = 0; h < layout_.hosts(); ++h) {
      if (h != self_host_ && layout_.relay(self_host_, h) == here[i]) {
        send_.add(run_of(sizes_[at(h)].sent));
        send_.add(run_of(sizes_[at(h)].received));
      }
    }
    recv_.next();
    for (std::size_t c = 0; c < crossings_.size(); ++c) {
      SizesOf& theirs = local_sizes_[c * here.size() + i];
      recv_.add(run_of(theirs.sent));
      recv_.add(run_of(theirs.received));
    }
  }
  host_.copy_directly(ctx, stage_stamp(call), send_.lanes(), recv_.lanes());
}

/// Sizes by sender, as they lie in messages.
void Relays::collect_sizes(Payload payload) {
  const std::size_t here = layout_.ranks_of(self_host_).size();
  for (std::size_t c = 0; c < crossings_.size(); ++c) {
    Crossing& crossing = crossings_[c];
    const SizesOf* const local = &local_sizes_[c * here];
    crossing.out_sizes.clear();
    for (std::size_t i = 0; i < here; ++i) {
      const auto begin = local[i].sent.begin();
      crossing.out_sizes.insert(
          crossing.out_sizes.end(), begin,
          begin + static_cast<std::ptrdiff_t>(payloads(crossing.host, payload)));
    }
    crossing.in_sizes.clear();
    for (std::size_t s = 0; s < layout_.ranks_of(crossing.host).size(); ++s) {
      for (std::size_t i = 0; i < payloads(self_host_, payload); ++i) {
        crossing.in_sizes.push_back(local[i].received[s]);
      }
    }
  }
}

/// Lanes to other hosts become one run each; those from other hosts get a place.
void Relays::pack(const Context& ctx, const Exchange& call) {
  const auto elsewhere = [&](std::size_t p) {
    return layout_.host(static_cast<int>(p)) != self_host_;
  };
  // Lanes that are the same pieces as the one before, as those of a gather are, share its run.
  const auto repeats = [](std::span<const Lane> lanes, std::size_t p, std::size_t before) {
    return before < lanes.size() && lanes[p].pieces.data() == lanes[before].pieces.data() &&
           lanes[p].pieces.size() == lanes[before].pieces.size();
  };
  const auto packed_bytes = [&](std::span<const Lane> lanes) {
    std::int64_t bytes = 0;
    std::size_t before = lanes.size();
    for (std::size_t p = 0; p < lanes.size(); ++p) {
      if (elsewhere(p)) {
        bytes += is_one_run(lanes[p]) || repeats(lanes, p, before) ? 0 : lanes[p].bytes();
        before = p;
      }
    }
    return bytes;
  };
  const auto place = [&](std::span<const Lane> lanes, std::byte* packed, std::vector<Piece>& runs,
                         RunEnd end) {
    std::size_t before = lanes.size();
    for (std::size_t p = 0; p < lanes.size(); ++p) {
      if (!elsewhere(p)) {
        continue;
      }
      if (is_one_run(lanes[p])) {
        runs[p] = lanes[p].pieces.front();
      } else if (repeats(lanes, p, before)) {
        runs[p] = runs[before];
      } else {
        runs[p] = {packed, lanes[p].bytes()};
        packed += runs[p].bytes;
        if (end == RunEnd::kTo) {
          add_copies_of_run(lanes[p], runs[p], end, copies_);
        }
      }
      before = p;
    }
  };
  copies_.clear();
  place(call.send, packed_out_.at_least_of<std::byte>(packed_bytes(call.send)), out_, RunEnd::kTo);
  place(call.recv, packed_in_.at_least_of<std::byte>(packed_bytes(call.recv)), in_, RunEnd::kFrom);
  run_copies(ctx.pool, copies_);
}

void Relays::reserve_crossings() {
  layout::RelayBlocks<std::int64_t> blocks;
  for (const Crossing& crossing : crossings_) {
    blocks.add_crossing(lane_bytes(crossing.out_sizes), lane_bytes(crossing.in_sizes));
  }
  std::byte* place = crossing_bytes_.at_least_of<std::byte>(blocks.crossing);
  for (Crossing& crossing : crossings_) {
    crossing.out = std::exchange(place, place + message_bytes(crossing.out_sizes));
    crossing.in = std::exchange(place, place + message_bytes(crossing.in_sizes));
    const std::uint64_t word = check_word(crossing.out_sizes);
    std::memcpy(crossing.out, &word, sizeof word);
  }
}

void Relays::gather(const Context& ctx, const Exchange& call) {
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < here.size(); ++i) {
    const bool other = here[i] != all_.rank();
    const auto direct = [&](const Lane& lane) {
      return other && !lane.silent ? lane.pieces : std::span<const Piece>();
    };
    send_.next();
    for (const Piece& piece : direct(call.send[at(here[i])])) {
      send_.add(piece);
    }
    for (int h = 0; h < layout_.hosts(); ++h) {
      if (h != self_host_ && layout_.relay(self_host_, h) == here[i]) {
        for (std::size_t j = 0; j < payloads(h, call.payload); ++j) {
          send_.add(out_[at(layout_.ranks_of(h)[j])]);
        }
      }
    }
    recv_.next();
    for (const Piece& piece : direct(call.recv[at(here[i])])) {
      recv_.add(piece);
    }
    for (const Crossing& crossing : crossings_) {
      const std::size_t each = payloads(crossing.host, call.payload);
      std::byte* place = crossing.out + layout::kCheckBytes;
      for (std::size_t k = 0; k < crossing.out_sizes.size(); ++k) {
        const std::int64_t bytes = std::max<std::int64_t>(crossing.out_sizes[k], 0);
        if (k / each == i) {
          recv_.add({place, bytes});
        }
        place += bytes;
      }
    }
  }
  host_.copy_directly(ctx, stage_stamp(call), send_.lanes(), recv_.lanes());
}

void Relays::cross(const Context& ctx, const Exchange& call) {
  send_.clear();
  recv_.clear();
  for (int p = 0; p < layout_.ranks(); ++p) {
    send_.next();
    recv_.next();
    for (const Crossing& crossing : crossings_) {
      if (layout_.relay(crossing.host, self_host_) != p) {
        continue;
      }
      if (!is_silent(crossing.out_sizes)) {
        send_.add({crossing.out, message_bytes(crossing.out_sizes)});
      }
      if (!is_silent(crossing.in_sizes)) {
        recv_.add({crossing.in, message_bytes(crossing.in_sizes)});
      }
    }
  }
  all_.copy_directly(ctx, call.stamp, send_.lanes(), recv_.lanes());
  for (const Crossing& crossing : crossings_) {
    const std::uint64_t expected = check_word(crossing.in_sizes);
    if (!is_silent(crossing.in_sizes) &&
        std::memcmp(crossing.in, &expected, sizeof expected) != 0) {
      fail(ErrorCode::kComm,
           "{}: the ranks of host {} send other sizes to host {} than its ranks expect, though the "
           "sums agree; all ranks must run the same program with the same configuration",
           describe(call.stamp, all_.name()), crossing.host, self_host_);
    }
  }
}

void Relays::scatter(const Context& ctx, const Exchange& call) {
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  const std::size_t each = payloads(self_host_, call.payload);
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < here.size(); ++i) {
    send_.next();
    for (const Crossing& crossing : crossings_) {
      std::byte* place = crossing.in + layout::kCheckBytes;
      for (std::size_t k = 0; k < crossing.in_sizes.size(); ++k) {
        const std::int64_t bytes = std::max<std::int64_t>(crossing.in_sizes[k], 0);
        if (each == 1 || k % each == i) {
          send_.add({place, bytes});
        }
        place += bytes;
      }
    }
    recv_.next();
    for (int h = 0; h < layout_.hosts(); ++h) {
      if (h != self_host_ && layout_.relay(self_host_, h) == here[i]) {
        for (const int sender : layout_.ranks_of(h)) {
          recv_.add(in_[at(sender)]);
        }
      }
    }
  }
  host_.copy_directly(ctx, stage_stamp(call), send_.lanes(), recv_.lanes());
}

void Relays::unpack(const Context& ctx, const Exchange& call) {
  copies_.clear();
  for (std::size_t p = 0; p < in_.size(); ++p) {
    if (layout_.host(static_cast<int>(p)) != self_host_) {
      add_copies_of_run(call.recv[p], in_[p], RunEnd::kFrom, copies_);
    }
  }
  run_copies(ctx.pool, copies_);
}

}  // namespace weft::comm
