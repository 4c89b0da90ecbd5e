#include "weft/planner/partition_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "weft/base/error.h"

namespace weft::planner {
namespace {

constexpr std::int32_t kManyBins = 512;  ///< below them going through all is as quick
constexpr int kVain = 6;      ///< bins without room, after which going through all is quicker
constexpr int kTries = 1000;  ///< items asked to leave for one that found no place

/// The power of two that makes the sum of all costs fit into 62 bits.
int shift_for(const Problem& problem) {
  double most = 0.0;
  for (const Item& item : problem.items) {
    most = std::max(most, item.cost);
  }
  for (const Bin& bin : problem.bins) {
    most = std::max(most, bin.cost);
  }
  if (most == 0.0) {
    return 0;
  }
  int exponent = 0;
  (void)std::frexp(most, &exponent);
  const std::uint64_t terms = problem.items.size() + problem.bins.size();
  return 61 - static_cast<int>(std::bit_width(terms)) - exponent;
}

Ticks ticks_of(double cost, int shift) {
  return static_cast<Ticks>(std::llround(std::ldexp(cost, shift)));
}

}  // namespace

Instance::Instance(const Problem& problem) : problem_(&problem) {
  check(problem);
  shift_ = shift_for(problem);
  const auto bins = static_cast<std::int64_t>(problem.bins.size());
  items_.reserve(problem.items.size());
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const Item& item = problem.items[i];
    items_.push_back({.cost = ticks_of(item.cost, shift_),
                      .bytes = item.bytes,
                      .range = item.bins.empty() ? Range{0, bins} : item.bins,
                      .label = item.group,
                      .position = i});
  }
  for (const Bin& bin : problem.bins) {
    base_.push_back(ticks_of(bin.cost, shift_));
  }
  std::sort(items_.begin(), items_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(b.cost, b.bytes, a.range.begin, a.range.end, a.label, a.position) <
           std::tie(a.cost, a.bytes, b.range.begin, b.range.end, b.label, b.position);
  });
  number_groups();
}

void Instance::number_groups() {
  std::map<std::int64_t, std::int32_t> members;
  for (const Entry& item : items_) {
    ++members[item.label];
  }
  for (auto& [label, number] : members) {
    number = label == kNoGroup || number < 2 ? kNone : groups_++;
  }
  for (Entry& item : items_) {
    item.group = members[item.label];
  }
}

double Instance::cost_of(Ticks ticks) const {
  return std::ldexp(static_cast<double>(ticks), -shift_);
}

std::vector<Instance::RangeItems> Instance::by_range() const {
  std::map<std::tuple<std::int64_t, std::int64_t>, std::vector<std::int32_t>> found;
  for (std::int32_t i = 0; i < items(); ++i) {
    found[{range(i).size(), range(i).begin}].push_back(i);
  }
  std::vector<RangeItems> out;
  for (auto& [key, list] : found) {
    const auto [size, begin] = key;
    out.push_back({.range = {begin, begin + size}, .items = std::move(list)});
  }
  return out;
}

State::State(const Instance& instance)
    : instance_(&instance),
      where_(at(instance.items()), kNone),
      held_(at(instance.bins())),
      occupied_((at(instance.groups()) * at(instance.bins()) + 63) / 64) {
  for (std::int32_t b = 0; b < instance.bins(); ++b) {
    load_.push_back(instance.base(b));
    bytes_.push_back(instance.bin(b).bytes);
  }
}

bool State::group_is_in(std::int32_t group, std::int32_t bin) const {
  if (group == kNone) {
    return false;
  }
  const std::size_t bit = at(group) * held_.size() + at(bin);
  return (occupied_[bit / 64] >> (bit % 64) & 1U) != 0;
}

bool State::fits(std::int32_t item, std::int32_t bin, std::int32_t without) const {
  const Range& range = instance_->range(item);
  if (bin < range.begin || bin >= range.end) {
    return false;
  }
  const std::int32_t group = instance_->group(item);
  if (group_is_in(group, bin) && (without == kNone || instance_->group(without) != group)) {
    return false;
  }
  const Bytes& capacity = instance_->bin(bin).capacity;
  const Bytes& need = instance_->bytes(item);
  for (std::size_t t = 0; t < kTiers; ++t) {
    const std::int64_t freed = without == kNone ? 0 : instance_->bytes(without)[t];
    if (need[t] > 0 && capacity[t] - (bytes_[at(bin)][t] - freed) < need[t]) {
      return false;
    }
  }
  return true;
}

void State::put(std::int32_t item, std::int32_t bin) {
  where_[at(item)] = bin;
  load_[at(bin)] += instance_->cost(item);
  if (!winners_.empty()) {
    replay(bin);
  }
  for (std::size_t t = 0; t < kTiers; ++t) {
    bytes_[at(bin)][t] += instance_->bytes(item)[t];
  }
  std::vector<std::int32_t>& list = held_[at(bin)];
  list.insert(std::lower_bound(list.begin(), list.end(), item), item);
  if (instance_->group(item) != kNone) {
    const std::size_t bit = at(instance_->group(item)) * held_.size() + at(bin);
    occupied_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

void State::take(std::int32_t item) {
  const std::int32_t bin = bin_of(item);
  where_[at(item)] = kNone;
  load_[at(bin)] -= instance_->cost(item);
  if (!winners_.empty()) {
    replay(bin);
  }
  for (std::size_t t = 0; t < kTiers; ++t) {
    bytes_[at(bin)][t] -= instance_->bytes(item)[t];
  }
  std::vector<std::int32_t>& list = held_[at(bin)];
  list.erase(std::lower_bound(list.begin(), list.end(), item));
  if (instance_->group(item) != kNone) {
    const std::size_t bit = at(instance_->group(item)) * held_.size() + at(bin);
    occupied_[bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
  }
}

/// The lower one of two that cost as much.
bool State::is_colder(std::int32_t bin, std::int32_t than) const {
  return than == kNone ||
         (bin != kNone && (load(bin) < load(than) || (load(bin) == load(than) && bin < than)));
}

void State::start_tournament() {
  const std::size_t leaves = std::bit_ceil(held_.size());
  winners_.assign(2 * leaves, kNone);
  for (std::size_t b = 0; b < held_.size(); ++b) {
    winners_[leaves + b] = static_cast<std::int32_t>(b);
  }
  for (std::size_t node = leaves - 1; node > 0; --node) {
    const std::int32_t left = winners_[2 * node];
    const std::int32_t right = winners_[2 * node + 1];
    winners_[node] = is_colder(right, left) ? right : left;
  }
}

/// After its load has changed.
void State::replay(std::int32_t bin) {
  for (std::size_t node = (winners_.size() / 2 + at(bin)) / 2; node > 0; node /= 2) {
    const std::int32_t left = winners_[2 * node];
    const std::int32_t right = winners_[2 * node + 1];
    winners_[node] = is_colder(right, left) ? right : left;
  }
}

/// Among `bins`, those of a node, the colder half first; halves that cannot be colder than `best`
/// are passed over.
void State::find_coldest(std::size_t node, Range bins, Asked& asked, std::int32_t& best) const {
  const Range& range = instance_->range(asked.item);
  const std::int32_t winner = winners_[node];
  if (winner == kNone || asked.left == 0 || bins.end <= range.begin || bins.begin >= range.end ||
      (best != kNone && !is_colder(winner, best))) {
    return;
  }
  if (bins.size() == 1) {
    if (winner != asked.except && fits(asked.item, winner)) {
      best = winner;
    } else {
      --asked.left;
    }
    return;
  }
  const std::int64_t middle = bins.begin + bins.size() / 2;
  const bool right_first = is_colder(winners_[2 * node + 1], winners_[2 * node]);
  for (const bool right : {right_first, !right_first}) {
    find_coldest(2 * node + (right ? 1 : 0),
                 right ? Range{middle, bins.end} : Range{bins.begin, middle}, asked, best);
  }
}

std::int32_t State::coldest(std::int32_t item, std::int32_t except) const {
  const Range& range = instance_->range(item);
  std::int32_t best = kNone;
  if (!winners_.empty()) {
    Asked asked{.item = item, .except = except, .left = kVain};
    find_coldest(1, {0, static_cast<std::int64_t>(winners_.size() / 2)}, asked, best);
    if (asked.left > 0) {
      return best;
    }
    best = kNone;
  }
  for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
    if ((best == kNone || load(b) < load(best)) && b != except && fits(item, b)) {
      best = b;
    }
  }
  return best;
}

/// Lets one item leave a bin for another, so that this one can come.
bool State::make_room(std::int32_t item) {
  const Range& range = instance_->range(item);
  std::vector<std::int32_t> order;
  for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
    order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](std::int32_t a, std::int32_t b) { return load(a) < load(b); });
  int tries = 0;
  for (const std::int32_t b : order) {
    for (const std::int32_t other : held(b)) {
      if (!fits(item, b, other)) {
        continue;
      }
      if (++tries > kTries) {
        return false;
      }
      const std::int32_t to = coldest(other, b);
      if (to != kNone) {
        take(other);
        put(other, to);
        put(item, b);
        return true;
      }
    }
  }
  return false;
}

void State::place_rest() {
  if (instance_->bins() >= kManyBins) {
    start_tournament();
  }
  for (std::int32_t i = 0; i < instance_->items(); ++i) {
    if (bin_of(i) == kNone) {
      const std::int32_t bin = coldest(i);
      if (bin != kNone) {
        put(i, bin);
      } else {
        (void)make_room(i);
      }
    }
  }
  winners_.clear();
}

Misfit State::misfit(std::int32_t item) const {
  Misfit least{.item = static_cast<std::int64_t>(instance_->position(item))};
  const Range& range = instance_->range(item);
  for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
    if (group_is_in(instance_->group(item), b)) {
      continue;
    }
    Misfit here{.item = least.item, .bin = b};
    for (std::size_t t = 0; t < kTiers; ++t) {
      const std::int64_t room = instance_->bin(b).capacity[t] - bytes_[at(b)][t];
      const std::int64_t missing = instance_->bytes(item)[t] - room;
      if (missing > here.missing) {
        here.tier = static_cast<std::int64_t>(t);
        here.missing = missing;
      }
    }
    if (least.bin == kNowhere || here.missing < least.missing) {
      least = here;
    }
  }
  return least;
}

Partition State::result() const {
  Partition out;
  out.bin.resize(where_.size(), kNowhere);
  for (std::int32_t b = 0; b < instance_->bins(); ++b) {
    out.cost.push_back(instance_->cost_of(load(b)));
    for (std::size_t t = 0; t < kTiers; ++t) {
      const std::int64_t over = instance_->bin(b).bytes[t] - instance_->bin(b).capacity[t];
      if (over > 0) {
        out.misfits.push_back({.bin = b, .tier = static_cast<std::int64_t>(t), .missing = over});
      }
    }
  }
  out.bytes = bytes_;
  for (std::int32_t i = 0; i < instance_->items(); ++i) {
    out.bin[instance_->position(i)] = bin_of(i);
    if (bin_of(i) == kNone) {
      out.misfits.push_back(misfit(i));
    }
  }
  std::stable_sort(out.misfits.begin(), out.misfits.end(),
                   [](const Misfit& a, const Misfit& b) { return a.item < b.item; });
  return out;
}

State state_of(const Instance& instance, std::span<const std::int64_t> bin) {
  if (bin.size() != static_cast<std::size_t>(instance.items())) {
    fail(ErrorCode::kUsage, "partition: {} places for {} items; give one for each", bin.size(),
         instance.items());
  }
  State state(instance);
  for (std::int32_t i = 0; i < instance.items(); ++i) {
    const std::int64_t b = bin[instance.position(i)];
    if (b < kNowhere || b >= instance.bins()) {
      fail(ErrorCode::kUsage, "partition: item {} is put into bin {}, but there are {}",
           instance.position(i), b, instance.bins());
    }
    if (b != kNowhere && state.fits(i, static_cast<std::int32_t>(b))) {
      state.put(i, static_cast<std::int32_t>(b));
    }
  }
  return state;
}

}  // namespace weft::planner
