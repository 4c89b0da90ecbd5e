#include "tests/comm/cases.h"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/host_layout.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/ordered_reduce.h"

namespace weft::comm::testing {
namespace {

/// Element i of rank r: a small integer, so that sums are exact in every type and order.
std::int64_t element(int rank, std::int64_t i) {
  return (rank * 131 + i * 7) % 1009 - 500;
}

float random_float(std::uint64_t key, std::uint64_t i) {
  return (uniform_float(philox(key, i, 0)[0]) - 0.5F) * 1000.0F;
}

template <typename T>
std::vector<T> elements(int rank, std::int64_t count) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<T>(element(rank, i)));
  }
  return out;
}

template <typename T>
std::vector<T> reduced(int ranks, std::int64_t count, ReduceOp op) {
  std::vector<T> out = elements<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::int64_t i = 0; i < count; ++i) {
      T& value = out[static_cast<std::size_t>(i)];
      const auto term = static_cast<T>(element(rank, i));
      value = op == ReduceOp::kSum   ? static_cast<T>(value + term)
              : op == ReduceOp::kMin ? std::min(value, term)
                                     : std::max(value, term);
    }
  }
  return out;
}

template <typename T>
void check_reductions(Communicator& world, std::int64_t count) {
  Context ctx;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    const std::vector<T> expected = reduced<T>(world.size(), count, op);
    std::vector<T> data = elements<T>(world.rank(), count);
    const Range own = piece(count, world.size(), world.rank());
    std::vector<T> slice(static_cast<std::size_t>(own.size()));
    world.reduce_scatter(ctx, data.data(), slice.data(), count, op);
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(), expected.begin() + own.begin)) << count;
    world.all_reduce(ctx, data.data(), count, op);
    EXPECT_EQ(data, expected) << count;
  }
}

/// The order of addition is the tree over ranks.
void check_order(Communicator& world, std::int64_t count) {
  Context ctx;
  const auto make = [&](int rank, std::int64_t i) {
    return random_float(static_cast<std::uint64_t>(rank) + 1, static_cast<std::uint64_t>(i));
  };
  std::vector<float> data;
  for (std::int64_t i = 0; i < count; ++i) {
    data.push_back(make(world.rank(), i));
  }
  world.all_reduce(ctx, data.data(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<float> slots(16);
    sum_tree(
        Range{0, world.size()}, 0,
        [&](Range node, int depth) {
          slots[static_cast<std::size_t>(depth)] = make(static_cast<int>(node.begin), i);
          return node.size() == 1;
        },
        [&](int depth) {
          const auto slot = static_cast<std::size_t>(depth);
          slots[slot] += slots[slot + 1];
        });
    ASSERT_EQ(std::bit_cast<std::uint32_t>(data[static_cast<std::size_t>(i)]),
              std::bit_cast<std::uint32_t>(slots[0]))
        << "element " << i << " of " << count;
  }
}

/// Values that rank `from` has for rank `to`, with sizes of their own.
std::vector<std::int64_t> message(int from, int to, std::int64_t count) {
  std::vector<std::int64_t> out;
  const std::int64_t length = (from + to) % 3 == 0 ? 0 : count + from * 3 + to;
  for (std::int64_t i = 0; i < length; ++i) {
    out.push_back(from * 1000003 + to * 1009 + i);
  }
  return out;
}

void check_all_to_all(Communicator& world, std::int64_t count) {
  Context ctx;
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> expected;
  std::vector<std::int64_t> send_bytes;
  std::vector<std::int64_t> recv_bytes;
  for (int p = 0; p < world.size(); ++p) {
    const auto out = message(world.rank(), p, count);
    const auto in = message(p, world.rank(), count);
    send.insert(send.end(), out.begin(), out.end());
    expected.insert(expected.end(), in.begin(), in.end());
    send_bytes.push_back(static_cast<std::int64_t>(out.size() * 8));
    recv_bytes.push_back(static_cast<std::int64_t>(in.size() * 8));
  }
  std::vector<std::int64_t> recv(expected.size(), -1);
  world.all_to_all_v(ctx, {send.data(), send_bytes, recv.data(), recv_bytes});
  EXPECT_EQ(recv, expected);

  std::vector<std::int64_t> blocks;
  std::vector<std::int64_t> mirrored;
  for (int p = 0; p < world.size(); ++p) {
    for (std::int64_t i = 0; i < count; ++i) {
      blocks.push_back(world.rank() * 100 + p);
      mirrored.push_back(p * 100 + world.rank());
    }
  }
  std::vector<std::int64_t> received(blocks.size(), -1);
  world.all_to_all(ctx, blocks.data(), received.data(), count * 8);
  EXPECT_EQ(received, mirrored);
}

void check_gather(Communicator& world, std::int64_t count) {
  Context ctx;
  const std::vector<std::int64_t> own = elements<std::int64_t>(world.rank(), count);
  std::vector<std::int64_t> expected;
  std::vector<std::int64_t> expected_v;
  std::vector<std::int64_t> bytes;
  for (int p = 0; p < world.size(); ++p) {
    const auto block = elements<std::int64_t>(p, count);
    expected.insert(expected.end(), block.begin(), block.end());
    const auto varied = elements<std::int64_t>(p, count + p);
    expected_v.insert(expected_v.end(), varied.begin(), varied.end());
    bytes.push_back((count + p) * 8);
  }
  std::vector<std::int64_t> recv(expected.size(), -1);
  world.all_gather(ctx, own.data(), recv.data(), count * 8);
  EXPECT_EQ(recv, expected);

  const auto varied = elements<std::int64_t>(world.rank(), count + world.rank());
  std::vector<std::int64_t> recv_v(expected_v.size(), -1);
  world.all_gather_v(ctx, {varied.data(), (count + world.rank()) * 8, recv_v.data(), bytes});
  EXPECT_EQ(recv_v, expected_v);

  // In place: the sent block is this rank's place in recv.
  std::vector<std::int64_t> place(expected.size(), -1);
  std::copy(own.begin(), own.end(), place.begin() + world.rank() * count);
  world.all_gather(ctx, place.data() + world.rank() * count, place.data(), count * 8);
  EXPECT_EQ(place, expected);
}

void check_broadcast(Communicator& world, std::int64_t count) {
  Context ctx;
  for (int root = 0; root < world.size(); ++root) {
    std::vector<double> data = elements<double>(world.rank(), count);
    world.broadcast(ctx, data.data(), count * 8, root);
    EXPECT_EQ(data, elements<double>(root, count));
  }
}

/// A sum of parts, as the rule says, by recursion: a term may be absent.
struct Term {
  bool present = false;
  float value = 0.0F;
};

Term tree_sum(const std::vector<Term>& terms, std::size_t begin, std::size_t end) {
  if (end - begin == 1) {
    return terms[begin];
  }
  const std::size_t middle = begin + std::bit_floor(end - begin - 1);
  const Term left = tree_sum(terms, begin, middle);
  const Term right = tree_sum(terms, middle, end);
  if (left.present && right.present) {
    return {true, left.value + right.value};
  }
  return left.present ? left : right;
}

/// Which parts have a term, by pattern.
bool has_term(int pattern, std::int64_t part) {
  switch (pattern) {
    case 0:
      return true;
    case 1:
      return part % 3 != 1;
    case 2:
      return part == 2;
    default:
      return false;
  }
}

/// The values that the parts add, whatever the pattern.
struct PartValues {
  std::int64_t parts;
  std::vector<float> values;  ///< [count][parts]
};

PartValues values_of(std::int64_t parts, std::int64_t count) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(parts * count));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t part = 0; part < parts; ++part) {
      values.push_back(
          random_float(static_cast<std::uint64_t>(part) + 77, static_cast<std::uint64_t>(i)));
    }
  }
  return {parts, std::move(values)};
}

void check_ordered_pattern(
    Context& ctx, OrderedAllReduce& reduce, const PartValues& added, int pattern, bool in_place) {
  const std::int64_t parts = added.parts;
  std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()));
  std::vector<float> expected;
  std::vector<Term> terms(static_cast<std::size_t>(parts));
  for (std::int64_t i = 0; i < reduce.count(); ++i) {
    for (std::int64_t part = 0; part < parts; ++part) {
      terms[static_cast<std::size_t>(part)] = {
          has_term(pattern, part), added.values[static_cast<std::size_t>(i * parts + part)]};
    }
    expected.push_back(tree_sum(terms, 0, terms.size()).value * (pattern == 3 ? 0.0F : 1.0F));
    for (std::int64_t k = 0; k < reduce.num_partials(); ++k) {
      const Range run = reduce.partial_parts(k);
      const Term sum =
          tree_sum(terms, static_cast<std::size_t>(run.begin), static_cast<std::size_t>(run.end));
      present[static_cast<std::size_t>(k)] = sum.present ? 1 : 0;
      reduce.partial(k)[i] = sum.present ? sum.value : 1e30F;  // must not be looked at
    }
  }
  if (pattern == 3) {
    expected.assign(expected.size(), 0.0F);
  }
  std::vector<float> out(expected.size(), -1.0F);
  if (in_place) {
    const float* const sums = reduce.run(ctx, present);
    out.assign(sums, sums + reduce.count());
  } else {
    reduce.run(ctx, present, out.data());
  }
  EXPECT_TRUE(same_bits(out, expected))
      << parts << " parts, pattern " << pattern << ", " << out.size() << " numbers";
}

// --- Pieces of rows ------------------------------------------------------------------------------

/// How a piece lies in memory at one end.
enum class Layout { kRun, kStrided, kPicked };

/// One piece of the lane from one rank to another: the sizes that both ends know.
struct PieceShape {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
};

std::uint32_t draw(std::uint64_t seed, int from, int to, std::uint64_t what) {
  return philox(seed * 64 + static_cast<std::uint64_t>(from * 8 + to), what, 1)[0];
}

/// Lanes of nothing, of a header's message, of many small pieces, and of long ones.
std::vector<PieceShape> lane_shape(std::uint64_t seed, int from, int to) {
  constexpr std::array<std::int64_t, 7> kRowBytes = {1, 12, 64, 100, 128, 256, 512};
  const std::uint32_t pieces = draw(seed, from, to, 0) % 6;
  const std::uint32_t most_rows = draw(seed, from, to, 1) % 3 == 0 ? 3 : 800;
  std::vector<PieceShape> shape;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    shape.push_back({draw(seed, from, to, 10 + i) % most_rows,
                     kRowBytes[draw(seed, from, to, 20 + i) % kRowBytes.size()]});
  }
  return shape;
}

std::uint8_t byte_of(int from, int to, std::size_t piece, std::int64_t i) {
  return static_cast<std::uint8_t>(from * 41 + to * 17 + static_cast<int>(piece) * 5 + i * 3 +
                                   i / 256);
}

/// The memory of one end of a lane.
class LaneMemory {
 public:
  static constexpr std::uint8_t kUntouched = 0xEE;

  LaneMemory(const std::vector<PieceShape>& shape, std::uint64_t seed, int own, int other) {
    memory_.resize(shape.size());
    rows_.resize(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto [rows, row_bytes] = shape[i];
      const auto layout = static_cast<Layout>(draw(seed, own, other, 30 + i) % 3);
      const std::int64_t stride = layout == Layout::kRun ? row_bytes : row_bytes + 7;
      // Picked rows: every second, the last first.
      const std::int64_t height = layout == Layout::kPicked ? 2 * rows : rows;
      memory_[i].assign(static_cast<std::size_t>(height * stride), kUntouched);
      for (std::int64_t r = 0; r < rows && layout == Layout::kPicked; ++r) {
        rows_[i].push_back(static_cast<std::int32_t>(2 * (rows - 1 - r)));
      }
      Piece piece{memory_[i].data(), rows * row_bytes};
      if (layout != Layout::kRun) {
        piece.row_bytes = row_bytes;
        piece.stride = stride;
        piece.rows = layout == Layout::kPicked ? rows_[i].data() : nullptr;
      }
      pieces_.push_back(piece);
    }
  }

  [[nodiscard]] Lane lane() const { return {.pieces = pieces_}; }

  [[nodiscard]] const std::vector<std::vector<std::uint8_t>>& memory() const { return memory_; }

 private:
  std::vector<std::vector<std::uint8_t>> memory_;
  std::vector<std::vector<std::int32_t>> rows_;
  std::vector<Piece> pieces_;
};

/// Byte i of a piece.
std::uint8_t& byte_at(const Piece& piece, std::int64_t i) {
  auto* const data = static_cast<std::uint8_t*>(piece.data);
  if (piece.row_bytes == 0) {
    return data[i];
  }
  const std::int64_t row = i / piece.row_bytes;
  return data[(piece.rows == nullptr ? row : piece.rows[row]) * piece.stride + i % piece.row_bytes];
}

void fill(const Lane& lane, int from, int to) {
  for (std::size_t p = 0; p < lane.pieces.size(); ++p) {
    for (std::int64_t i = 0; i < lane.pieces[p].bytes; ++i) {
      byte_at(lane.pieces[p], i) = byte_of(from, to, p, i);
    }
  }
}

bool holds(const Lane& lane, int from, int to) {
  for (std::size_t p = 0; p < lane.pieces.size(); ++p) {
    for (std::int64_t i = 0; i < lane.pieces[p].bytes; ++i) {
      if (byte_at(lane.pieces[p], i) != byte_of(from, to, p, i)) {
        return false;
      }
    }
  }
  return true;
}

/// What should lie in memory of that shape after a receive.
std::vector<std::vector<std::uint8_t>> expected_memory(const std::vector<PieceShape>& shape,
                                                       std::uint64_t seed,
                                                       int own,
                                                       int from) {
  const LaneMemory memory(shape, seed, own, from);
  fill(memory.lane(), from, own);
  return memory.memory();
}

}  // namespace

void check_collectives(Communicator& world, std::int64_t count) {
  check_reductions<float>(world, count);
  check_reductions<double>(world, count);
  check_reductions<std::int64_t>(world, count);
  check_order(world, std::min<std::int64_t>(count, 3000));
  check_all_to_all(world, count);
  check_gather(world, count);
  check_broadcast(world, count);
  Context ctx;
  world.barrier(ctx);
}

namespace {

/// One lane of pieces that goes to all ranks.
void check_gather_lent(Communicator& world, std::uint64_t seed) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const int self = world.rank();
  const LaneMemory out(lane_shape(seed, self, 0), seed + 1000, self, 0);
  fill(out.lane(), self, 0);
  std::vector<LaneMemory> landing;
  std::vector<Lane> recv;
  landing.reserve(static_cast<std::size_t>(world.size()));  // lanes point into it
  for (int p = 0; p < world.size(); ++p) {
    landing.emplace_back(lane_shape(seed, p, 0), seed + 2000, self, p);
    recv.push_back(landing.back().lane());
  }
  int calls = 0;
  world.gather_lent(ctx, out.lane(), recv, [&](std::span<const Lane> arrived) {
    ++calls;
    for (int p = 0; p < world.size(); ++p) {
      const Lane& lane = arrived[static_cast<std::size_t>(p)];
      EXPECT_EQ(lane.bytes(), recv[static_cast<std::size_t>(p)].bytes());
      EXPECT_TRUE(holds(lane, p, 0)) << "gathered, from rank " << p;
    }
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace

void check_rows(Communicator& world, std::uint64_t seed) {
  check_gather_lent(world, seed);
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const int self = world.rank();
  std::vector<LaneMemory> out;
  std::vector<LaneMemory> in;
  std::vector<LaneMemory> landing;
  for (int p = 0; p < world.size(); ++p) {
    out.emplace_back(lane_shape(seed, self, p), seed + 1000, self, p);
    fill(out.back().lane(), self, p);
    in.emplace_back(lane_shape(seed, p, self), seed, self, p);
    landing.emplace_back(lane_shape(seed, p, self), seed + 2000, self, p);
  }
  std::vector<Lane> send;
  std::vector<Lane> recv;
  std::vector<Lane> land;
  for (std::size_t p = 0; p < out.size(); ++p) {
    send.push_back(out[p].lane());
    recv.push_back(in[p].lane());
    land.push_back(landing[p].lane());
  }
  world.exchange(ctx, send, recv);
  int calls = 0;
  const auto read = [&](std::span<const Lane> arrived) {
    ++calls;
    for (int p = 0; p < world.size(); ++p) {
      EXPECT_TRUE(holds(arrived[static_cast<std::size_t>(p)], p, self)) << "lent, from rank " << p;
    }
  };
  world.exchange_lent(ctx, send, land, read);
  EXPECT_EQ(calls, 1);
  for (int p = 0; p < world.size(); ++p) {
    const auto i = static_cast<std::size_t>(p);
    EXPECT_EQ(in[i].memory(), expected_memory(lane_shape(seed, p, self), seed, self, p))
        << "seed " << seed << ", from rank " << p;
    if (world.lends() && p != self) {
      EXPECT_TRUE(std::all_of(landing[i].memory().begin(), landing[i].memory().end(), [](auto& m) {
        return std::all_of(m.begin(), m.end(), [](auto b) { return b == LaneMemory::kUntouched; });
      })) << "what is lent is not copied";
    }
  }
}

void check_traffic(Communicator& world) {
  Context ctx;
  const auto comm = world.duplicate("traffic");
  const std::int64_t peers = world.size() - 1;
  std::vector<std::byte> send(static_cast<std::size_t>(world.size()) * 100);
  std::vector<std::byte> recv(send.size());
  comm->all_to_all(ctx, send.data(), recv.data(), 100);
  EXPECT_EQ(comm->traffic().of(Collective::kAllToAll).bytes, 100 * peers);
  EXPECT_EQ(comm->traffic().of(Collective::kAllToAll).messages, peers);
  comm->all_gather(ctx, send.data(), recv.data(), 60);
  EXPECT_EQ(comm->traffic().of(Collective::kAllGather).bytes, 60 * peers);
  comm->broadcast(ctx, send.data(), 50, 0);
  EXPECT_EQ(comm->traffic().of(Collective::kBroadcast).bytes, world.rank() == 0 ? 50 * peers : 0);
  comm->barrier(ctx);
  EXPECT_EQ(comm->traffic().of(Collective::kBarrier).bytes, 0);
  EXPECT_EQ(comm->traffic().of(Collective::kBarrier).messages, peers);

  const std::int64_t count = 2400L * world.size();
  std::vector<float> data(static_cast<std::size_t>(count));
  comm->reduce_scatter(ctx, data.data(), data.data() + 0, 0);
  comm->all_reduce(ctx, data.data(), count);
  EXPECT_EQ(comm->traffic().of(Collective::kAllReduce).bytes, 2 * peers * 2400 * 4);
  EXPECT_EQ(comm->traffic().of(Collective::kAllReduce).messages, 2 * peers);
  comm->all_reduce(ctx, data.data(), 10);
  EXPECT_EQ(comm->traffic().of(Collective::kAllReduce).bytes, 2 * peers * 2400 * 4 + peers * 40);
  EXPECT_EQ(comm->traffic().total().calls, 8);
}

void check_crossings(Communicator& comm) {
  constexpr std::int64_t kCheckWord = 8;
  std::vector<int> hosts;
  for (int p = 0; p < comm.size(); ++p) {
    hosts.push_back(comm.host(p));
  }
  const HostLayout layout(hosts);
  if (layout.is_flat()) {
    EXPECT_EQ(comm.form(), Form::kFlat);
    return;
  }
  const auto bytes = [](int from, int to) { return std::int64_t{100} + 10 * from + to; };
  Context ctx;
  std::vector<std::int64_t> send_bytes;
  std::vector<std::int64_t> recv_bytes;
  for (int p = 0; p < comm.size(); ++p) {
    send_bytes.push_back(bytes(comm.rank(), p));
    recv_bytes.push_back(bytes(p, comm.rank()));
  }
  const std::vector<std::byte> send(4000);
  std::vector<std::byte> recv(4000);
  comm.all_to_all_v(ctx, {send.data(), send_bytes, recv.data(), recv_bytes});
  comm.all_gather(ctx, send.data(), recv.data(), 60);
  std::int64_t messages = 0;
  std::int64_t crossing = 0;
  std::int64_t gathered = 0;
  const int here = layout.host(comm.rank());
  for (int there = 0; there < layout.hosts(); ++there) {
    if (there == here || layout.relay(here, there) != comm.rank()) {
      continue;
    }
    ++messages;
    crossing += kCheckWord;
    gathered += kCheckWord;
    for (const int from : layout.ranks_of(here)) {
      gathered += 60;  // once for all ranks there
      for (const int to : layout.ranks_of(there)) {
        crossing += bytes(from, to);
      }
    }
  }
  const Traffic traffic = comm.traffic();
  EXPECT_EQ(traffic.of(Collective::kAllToAll).cross_host_messages, messages);
  EXPECT_EQ(traffic.of(Collective::kAllToAll).cross_host_bytes, crossing);
  EXPECT_EQ(traffic.of(Collective::kAllGather).cross_host_messages, messages);
  EXPECT_EQ(traffic.of(Collective::kAllGather).cross_host_bytes, gathered);
  EXPECT_EQ(comm.host_group()->traffic().total().cross_host_bytes, 0);
}

namespace {

/// Bytes between hosts of a sum, all ranks together.
void check_crossing(Communicator& comm, std::int64_t parts, Crossing crossing) {
  constexpr std::int64_t kCount = 1003;
  std::vector<int> hosts;
  for (int p = 0; p < comm.size(); ++p) {
    hosts.push_back(comm.host(p));
  }
  const HostLayout layout(hosts);
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  OrderedAllReduce reduce(comm, *device, parts, kCount, {.crossing = crossing});
  const std::vector<std::uint8_t> present(static_cast<std::size_t>(reduce.num_partials()), 1);
  std::fill_n(reduce.partial(0), kCount * reduce.num_partials(), 1.0F);
  const auto counted = comm.duplicate("sum");
  std::int64_t crossed = -comm.traffic().total().cross_host_bytes;
  reduce.run(ctx, present);
  crossed += comm.traffic().total().cross_host_bytes;
  counted->all_reduce(ctx, &crossed, 1);
  std::int64_t expected = kCount * 4 * (layout.hosts() - 1);  // sums, to every other host
  for (int h = 0; h < layout.hosts(); ++h) {
    const auto subtrees = static_cast<std::int64_t>(host_subtrees(layout, parts, h).size());
    for (int owner = 0; owner < layout.ranks(); ++owner) {
      if (layout.host(owner) != h) {
        expected += subtrees * 4 * piece(kCount, layout.ranks(), owner).size();
      }
    }
    // Flags: to the owner of each slice, or to each host.
    const auto others = layout.ranks() - static_cast<int>(layout.ranks_of(h).size());
    expected += subtrees * (crossing == Crossing::kDirect ? others : layout.hosts() - 1);
  }
  EXPECT_EQ(crossed, expected);
}

}  // namespace

std::vector<Crossing> crossings_of(const Communicator& comm) {
  return comm.form() == Form::kFlat ? std::vector{Crossing::kDirect}
                                    : std::vector{Crossing::kDirect, Crossing::kRelayed};
}

void check_reduce_crossings(Communicator& comm, std::int64_t parts) {
  if (comm.form() == Form::kFlat) {
    return;
  }
  for (const Crossing crossing : crossings_of(comm)) {
    check_crossing(comm, parts, crossing);
  }
}

void check_groups(Communicator& world) {
  Context ctx;
  // Odd and even ranks, in reverse order.
  const auto half = world.split(world.rank() % 2, -world.rank(), "half");
  const int expected_size = (world.size() + 1 - world.rank() % 2) / 2;
  ASSERT_EQ(half->size(), expected_size);
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(half->size()));
  const std::int64_t own = world.rank();
  half->all_gather(ctx, &own, ranks.data(), 8);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i], half->world_rank(static_cast<int>(i)));
    EXPECT_TRUE(i == 0 || ranks[i] < ranks[i - 1]);
  }
  // Some ranks in no group.
  const auto first = world.split(world.rank() == 0 ? 5 : -1, 0, "first");
  EXPECT_EQ(first != nullptr, world.rank() == 0);
  if (first) {
    first->barrier(ctx);
  }
  // A group of a group.
  const auto copy = half->duplicate("copy");
  std::int64_t sum = world.rank();
  copy->all_reduce(ctx, &sum, 1);
  std::int64_t expected = 0;
  for (const std::int64_t rank : ranks) {
    expected += rank;
  }
  EXPECT_EQ(sum, expected);
}

void check_concurrent_groups(Communicator& world) {
  const auto ids = world.duplicate("ids");
  const auto dense = world.split(0, -world.rank(), "dense");
  std::exception_ptr error;
  std::thread other([&] {
    try {
      for (int i = 0; i < 30; ++i) {
        check_gather(*dense, 100 * (i % 3));
      }
    } catch (...) {
      error = std::current_exception();
    }
  });
  for (int i = 0; i < 30; ++i) {
    check_all_to_all(*ids, 50 * (i % 4));
  }
  other.join();
  EXPECT_FALSE(error);
}

void check_ordered_reduce(Communicator& world, std::int64_t parts, std::int64_t count) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const PartValues added = values_of(parts, count);
  for (const Crossing crossing : crossings_of(world)) {
    OrderedAllReduce reduce(world, *device, parts, count, {.crossing = crossing});
    for (int pattern = 0; pattern < 4; ++pattern) {
      check_ordered_pattern(ctx, reduce, added, pattern, false);
      check_ordered_pattern(ctx, reduce, added, pattern, true);
    }
  }
}

void check_parts(Communicator& world, std::int64_t parts) {
  Context ctx;
  constexpr std::int64_t kWidth = 3;
  const auto value = [](std::int64_t part, std::int64_t j) {
    return static_cast<double>(
               random_float(static_cast<std::uint64_t>(j) + 5, static_cast<std::uint64_t>(part))) /
           3.0;
  };
  std::vector<double> values(static_cast<std::size_t>(parts * kWidth), -1.0);
  std::vector<double> sums(kWidth);
  const Range own = rank_parts(parts, world.size(), world.rank());
  for (std::int64_t part = own.begin; part < own.end; ++part) {
    for (std::int64_t j = 0; j < kWidth; ++j) {
      values[static_cast<std::size_t>(part * kWidth + j)] = value(part, j);
    }
  }
  all_reduce_parts(ctx, world, parts, values, sums);
  for (std::int64_t j = 0; j < kWidth; ++j) {
    std::vector<double> column;
    for (std::int64_t part = 0; part < parts; ++part) {
      column.push_back(value(part, j));
      EXPECT_EQ(values[static_cast<std::size_t>(part * kWidth + j)], column.back());
    }
    EXPECT_EQ(sums[static_cast<std::size_t>(j)], sum_parts(column));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts));
  for (std::int64_t part = own.begin; part < own.end; ++part) {
    counts[static_cast<std::size_t>(part)] = part;
  }
  std::vector<std::int64_t> total(1);
  all_reduce_parts(ctx, world, parts, counts, total);
  EXPECT_EQ(total[0], parts * (parts - 1) / 2);
}

}  // namespace weft::comm::testing
