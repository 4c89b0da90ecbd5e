#include "weft/comm/relays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/comm/communicator.h"
#include "weft/comm/messages.h"

namespace weft::comm {
namespace {

constexpr std::int64_t kSilent = -1;  // the size of a silent lane

std::int64_t size_or_silent(const Lane& lane) {
  return lane.silent ? kSilent : lane.bytes();
}

/// Begins the next lane, which is silent where nothing is relayed and it gets no piece. So who
/// sends what does not depend on whether what is relayed has bytes.
void next(LaneList& lanes, bool nothing_relayed) {
  lanes.next();
  if (!nothing_relayed) {
    lanes.open();
  }
}

Piece piece_of(std::span<std::int64_t> values) {
  return {values.data(), static_cast<std::int64_t>(values.size_bytes())};
}

}  // namespace

void Relays::Message::begin(std::size_t lanes) {
  sizes_.resize(lanes);
  begins_.resize(lanes);
  next_ = 0;
  lane_bytes_ = 0;
  silent_ = 0;
}

std::uint64_t Relays::Message::check_word() const {
  return hash_bytes(std::as_bytes(std::span(sizes_)));
}

Piece Relays::Message::lane(std::int64_t i) const {
  return {place_ + layout::kCheckBytes + begins_[at(i)], std::max<std::int64_t>(sizes_[at(i)], 0)};
}

Piece Relays::Message::run(std::int64_t first, std::int64_t count) const {
  const std::int64_t end = first + count < lanes() ? begins_[at(first + count)] : lane_bytes_;
  return {place_ + layout::kCheckBytes + begins_[at(first)], end - begins_[at(first)]};
}

void LaneList::clear() {
  pieces_.clear();
  begun_.clear();
}

std::span<const Lane> LaneList::lanes() {
  lanes_.clear();
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    const std::size_t end = i + 1 < begun_.size() ? begun_[i + 1].pieces : pieces_.size();
    lanes_.push_back({.pieces = pieces_.between(begun_[i].pieces, end),
                      .silent = begun_[i].silent,
                      .known_bytes = begun_[i].bytes});
  }
  return lanes_;
}

Relays::Relays(Communicator& all, Communicator& host, HostLayout layout)
    : all_(all),
      host_(host),
      layout_(std::move(layout)),
      self_host_(layout_.host(all.rank())),
      relayed_(layout_.ranks_of(self_host_).size()),
      out_(at(layout_.hosts())),
      in_(at(layout_.ranks())),
      arrived_(at(layout_.ranks())),
      crossing_lanes_(at(layout_.ranks())) {
  list_crossings();
  messages_.resize(2 * crossings_.size());
}

/// Which relay of this host goes with which other host, and what that needs to know.
void Relays::list_crossings() {
  for (int h = 0; h < layout_.hosts(); ++h) {
    if (h == self_host_) {
      continue;
    }
    const int relay = layout_.relay(self_host_, h);
    relayed_[at(layout_.place(relay))].push_back(h);
    if (relay == all_.rank()) {
      crossings_.push_back({.host = h, .relay = layout_.relay(h, self_host_), .out = {}, .in = {}});
    }
  }
  sizes_begin_.push_back(0);
  for (const std::vector<int>& hosts : relayed_) {
    std::size_t size = sizes_begin_.back();
    for (const int h : hosts) {
      size += 2 * layout_.ranks_of(h).size();
    }
    sizes_begin_.push_back(size);
  }
  sizes_.resize(sizes_begin_.back());
  const std::size_t self = at(layout_.place(all_.rank()));
  local_sizes_.resize(relayed_.size() * (sizes_begin_[self + 1] - sizes_begin_[self]));
}

void Relays::exchange(const Context& ctx, const Exchange& call) {
  const auto self = at(all_.rank());
  check_own_lane(all_.name(), call.stamp, call.send[self], call.recv[self]);
  share_sizes(ctx, call);
  collect_sizes(call.payload);
  pack(ctx, call);
  reserve_crossings();
  gather(ctx, call);
  cross(ctx, call.stamp);
  scatter(ctx, call);
  unpack(ctx);
  std::copy(call.recv.begin(), call.recv.end(), arrived_.begin());
  arrived_[self] = call.send[self];
  call.read(arrived_);
}

/// So that ranks of a host that are out of step are told what they were about to do.
Stamp Relays::stage_stamp(const Stamp& stamp) {
  const std::uint64_t arguments =
      hash_combine(stamp.arguments, static_cast<std::uint64_t>(stamp.size));
  return host_.next_stamp(stamp.collective, -1, arguments);
}

void Relays::share_sizes(const Context& ctx, const Exchange& call) {
  std::int64_t* next = sizes_.data();
  for (const std::vector<int>& hosts : relayed_) {
    for (const int h : hosts) {
      for (const std::span<const Lane> lanes : {call.send, call.recv}) {
        for (const int peer : layout_.ranks_of(h)) {
          *next++ = size_or_silent(lanes[at(peer)]);
        }
      }
    }
  }
  send_.clear();
  recv_.clear();
  const std::size_t each = local_sizes_.size() / relayed_.size();
  for (std::size_t i = 0; i < relayed_.size(); ++i) {
    const std::size_t size = sizes_begin_[i + 1] - sizes_begin_[i];
    send_.next();
    send_.add_unless_empty(piece_of(std::span(sizes_).subspan(sizes_begin_[i], size)));
    recv_.next();
    recv_.add_unless_empty(piece_of(std::span(local_sizes_).subspan(i * each, each)));
  }
  host_.copy_directly(ctx, stage_stamp(call.stamp), send_.lanes(), recv_.lanes());
}

/// Sizes by sender, as they lie in messages.
void Relays::collect_sizes(Payload payload) {
  const std::size_t here = relayed_.size();
  const std::size_t each = local_sizes_.size() / here;
  std::size_t begin = 0;  // of the crossing's sizes among those of a rank
  for (Crossing& crossing : crossings_) {
    const std::size_t there = layout_.ranks_of(crossing.host).size();
    const auto sent = [&](std::size_t i, std::size_t j) {
      return local_sizes_[i * each + begin + j];
    };
    const std::size_t to_there = payloads(crossing.host, payload);
    const std::size_t to_here = payloads(self_host_, payload);
    crossing.out.begin(here * to_there);
    for (std::size_t i = 0; i < here; ++i) {
      for (std::size_t j = 0; j < to_there; ++j) {
        crossing.out.add(sent(i, j));
      }
    }
    crossing.in.begin(there * to_here);
    for (std::size_t s = 0; s < there; ++s) {
      for (std::size_t i = 0; i < to_here; ++i) {
        crossing.in.add(sent(i, there + s));
      }
    }
    begin += 2 * there;
  }
}

/// Lanes to another host become one run; those from other hosts get a place.
void Relays::pack(const Context& ctx, const Exchange& call) {
  packed_.clear();
  const std::int64_t out = point_out(call, nullptr);
  if (out > 0) {
    point_out(call, packed_out_.at_least_of<std::byte>(out));
    copy_runs(ctx.pool, packed_, RunEnd::kTo, copies_);
  }
  point_in(call);
}

/// Lists what is packed from `packed` on; returns its bytes.
std::int64_t Relays::point_out(const Exchange& call, std::byte* packed) {
  std::int64_t bytes = 0;
  const std::int64_t* sizes = sizes_.data();
  const Lane* before = nullptr;  // of a gather the lane that has been packed, for all hosts
  Piece run_before;
  for (const std::vector<int>& hosts : relayed_) {
    for (const int h : hosts) {
      const std::vector<int>& there = layout_.ranks_of(h);
      const std::size_t lanes = payloads(h, call.payload);
      Piece& run = out_[at(h)];
      run = {};
      bool is_run = true;  // all lanes so far, which lie behind each other
      for (std::size_t j = 0; j < lanes; ++j) {
        const Lane& lane = call.send[at(there[j])];
        const std::int64_t size = std::max<std::int64_t>(sizes[j], 0);
        if (size > 0) {
          std::byte* const begin = is_run ? run_of(lane.pieces) : nullptr;
          is_run = begin != nullptr &&
                   (run.bytes == 0 || begin == static_cast<std::byte*>(run.data) + run.bytes);
          run.data = run.bytes == 0 ? begin : run.data;
          run.bytes += size;
        }
      }
      const std::int64_t* const own = std::exchange(sizes, sizes + 2 * there.size());
      if (is_run) {
        continue;
      }
      const Lane& first = call.send[at(there.front())];
      if (call.payload == Payload::kSame && before != nullptr &&
          before->pieces.data() == first.pieces.data() &&
          before->pieces.size() == first.pieces.size()) {
        run = run_before;
        continue;
      }
      run.data = packed == nullptr ? nullptr : packed + bytes;
      std::byte* place = packed == nullptr ? nullptr : packed + bytes;
      bytes += run.bytes;
      before = &first;
      run_before = run;
      for (std::size_t j = 0; j < lanes && packed != nullptr; ++j) {
        if (own[j] > 0) {
          packed_.push_back({call.send[at(there[j])].pieces, place, own[j]});
          place += own[j];
        }
      }
    }
  }
  return bytes;
}

/// Says where lanes from other hosts come to, and lists those that are unpacked from there.
void Relays::point_in(const Exchange& call) {
  std::int64_t bytes = 0;  // to be unpacked
  const std::int64_t* sizes = sizes_.data();
  for (const std::vector<int>& hosts : relayed_) {
    for (const int h : hosts) {
      const std::vector<int>& there = layout_.ranks_of(h);
      sizes += there.size();
      for (const int sender : there) {
        Piece& run = in_[at(sender)];
        run = {run_of(call.recv[at(sender)].pieces), std::max<std::int64_t>(*sizes++, 0)};
        bytes += run.data == nullptr ? run.bytes : 0;
      }
    }
  }
  std::byte* place = packed_in_.at_least_of<std::byte>(bytes);
  packed_.clear();
  for (std::size_t p = 0; p < in_.size() && bytes > 0; ++p) {
    Piece& run = in_[p];
    if (layout_.host(static_cast<int>(p)) != self_host_ && run.data == nullptr && run.bytes > 0) {
      run.data = std::exchange(place, place + run.bytes);
      packed_.push_back({call.recv[p].pieces, static_cast<std::byte*>(run.data), run.bytes});
    }
  }
}

void Relays::reserve_crossings() {
  layout::RelayBlocks<std::int64_t> blocks;
  for (const Crossing& crossing : crossings_) {
    blocks.add_crossing(crossing.out.lane_bytes(), crossing.in.lane_bytes());
  }
  std::byte* place = crossing_bytes_.at_least_of<std::byte>(blocks.crossing);
  for (Crossing& crossing : crossings_) {
    crossing.out.lie_at(std::exchange(place, place + crossing.out.bytes()));
    crossing.in.lie_at(std::exchange(place, place + crossing.in.bytes()));
    const std::uint64_t word = crossing.out.check_word();
    std::memcpy(crossing.out.place(), &word, sizeof word);
  }
}

/// Both ends of a lane in the host list the same pieces: they know what is relayed, and sizes.
void Relays::gather(const Context& ctx, const Exchange& call) {
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto direct = [&](const Lane& lane) {
      return here[i] != all_.rank() && !lane.silent ? lane.pieces : std::span<const Piece>();
    };
    const std::span<const Piece> to = direct(call.send[at(here[i])]);
    next(send_, relayed_[i].empty());
    for (const Piece& piece : to) {
      send_.add(piece);
    }
    for (const int h : relayed_[i]) {
      send_.add_unless_empty(out_[at(h)]);
    }
    const std::span<const Piece> from = direct(call.recv[at(here[i])]);
    next(recv_, crossings_.empty());
    for (const Piece& piece : from) {
      recv_.add(piece);
    }
    for (const Crossing& crossing : crossings_) {
      const auto each = static_cast<std::int64_t>(payloads(crossing.host, call.payload));
      recv_.add_unless_empty(crossing.out.run(static_cast<std::int64_t>(i) * each, each));
    }
  }
  host_.copy_directly(ctx, stage_stamp(call.stamp), send_.lanes(), recv_.lanes());
}

void Relays::cross(const Context& ctx, const Stamp& stamp) {
  const auto lane_of = [](const Message& message, Piece& piece) {
    piece = {message.place(), message.bytes()};
    return Lane{.pieces = {&piece, 1}, .silent = message.is_silent()};
  };
  crossing_lanes_.clear();
  for (std::size_t c = 0; c < crossings_.size(); ++c) {
    const auto& [host, relay, out, in] = crossings_[c];
    crossing_lanes_.send_to(relay, lane_of(out, messages_[2 * c]));
    crossing_lanes_.receive_from(relay, lane_of(in, messages_[2 * c + 1]));
  }
  all_.copy_directly(ctx, stamp, crossing_lanes_);
  for (const Crossing& crossing : crossings_) {
    const std::uint64_t expected = crossing.in.check_word();
    if (!crossing.in.is_silent() &&
        std::memcmp(crossing.in.place(), &expected, sizeof expected) != 0) {
      fail(ErrorCode::kComm,
           "{}: the ranks of host {} send other sizes to host {} than its ranks expect, though the "
           "sums agree; all ranks must run the same program with the same configuration",
           describe(stamp, all_.name()), crossing.host, self_host_);
    }
  }
}

void Relays::scatter(const Context& ctx, const Exchange& call) {
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  const auto each = static_cast<std::int64_t>(payloads(self_host_, call.payload));
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < here.size(); ++i) {
    next(send_, crossings_.empty());
    for (const Crossing& crossing : crossings_) {
      const std::int64_t own = each == 1 ? 0 : static_cast<std::int64_t>(i);
      for (std::int64_t k = own; k < crossing.in.lanes(); k += each) {
        send_.add_unless_empty(crossing.in.lane(k));
      }
    }
    next(recv_, relayed_[i].empty());
    for (const int h : relayed_[i]) {
      for (const int sender : layout_.ranks_of(h)) {
        recv_.add_unless_empty(in_[at(sender)]);
      }
    }
  }
  host_.copy_directly(ctx, stage_stamp(call.stamp), send_.lanes(), recv_.lanes());
}

void Relays::unpack(const Context& ctx) {
  copy_runs(ctx.pool, packed_, RunEnd::kFrom, copies_);
}

void Relays::exchange_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks) {
  set_sizes(blocks.bytes);
  reserve_crossings();
  gather_blocks(ctx, stamp, blocks);
  cross(ctx, stamp);
  scatter_blocks(ctx, stamp, blocks);
  const std::int64_t own = all_.rank() * blocks.bytes;
  if (blocks.bytes > 0) {
    std::memcpy(blocks.recv + own, blocks.send + own, at(blocks.bytes));
  }
}

/// Gives all lanes that cross one size.
void Relays::set_sizes(std::int64_t bytes) {
  for (Crossing& crossing : crossings_) {
    const std::size_t lanes = relayed_.size() * layout_.ranks_of(crossing.host).size();
    for (Message* const message : {&crossing.out, &crossing.in}) {
      message->begin(lanes);
      for (std::size_t i = 0; i < lanes; ++i) {
        message->add(bytes);
      }
    }
  }
}

/// Returns those among `blocks` [W] that are of the ranks of a host.
Piece Relays::blocks_of(int host, std::byte* blocks, std::int64_t bytes) const {
  const std::vector<int>& ranks = layout_.ranks_of(host);
  const std::int64_t all = std::ssize(ranks) * bytes;
  if (ranks.back() - ranks.front() + 1 == std::ssize(ranks)) {
    return {blocks + ranks.front() * bytes, all};
  }
  return {.data = blocks, .bytes = all, .row_bytes = bytes, .stride = bytes, .rows = ranks.data()};
}

void Relays::gather_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks) {
  const std::vector<int>& here = layout_.ranks_of(self_host_);
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < here.size(); ++i) {
    const bool is_self = here[i] == all_.rank();
    send_.next();
    recv_.next();
    if (!is_self) {
      send_.add({blocks.send + here[i] * blocks.bytes, blocks.bytes});
      recv_.add({blocks.recv + here[i] * blocks.bytes, blocks.bytes});
    }
    for (const int h : relayed_[i]) {
      send_.add(blocks_of(h, blocks.send, blocks.bytes));
    }
    for (const Crossing& crossing : crossings_) {
      const std::int64_t there = std::ssize(layout_.ranks_of(crossing.host));
      recv_.add(crossing.out.run(static_cast<std::int64_t>(i) * there, there));
    }
  }
  host_.copy_directly(ctx, stage_stamp(stamp), send_.lanes(), recv_.lanes());
}

/// Passes on what has come: of each message every g-th block is for one rank of this host.
void Relays::scatter_blocks(const Context& ctx, const Stamp& stamp, const Blocks& blocks) {
  const std::int64_t here = std::ssize(relayed_);
  send_.clear();
  recv_.clear();
  for (std::size_t i = 0; i < relayed_.size(); ++i) {
    send_.next();
    for (const Crossing& crossing : crossings_) {
      send_.add({.data = crossing.in.lane(static_cast<std::int64_t>(i)).data,
                 .bytes = crossing.in.lane_bytes() / here,
                 .row_bytes = blocks.bytes,
                 .stride = here * blocks.bytes});
    }
    recv_.next();
    for (const int h : relayed_[i]) {
      recv_.add(blocks_of(h, blocks.recv, blocks.bytes));
    }
  }
  host_.copy_directly(ctx, stage_stamp(stamp), send_.lanes(), recv_.lanes());
}

}  // namespace weft::comm
