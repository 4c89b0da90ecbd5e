#include "weft/base/subtree_stack.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft {

SubtreeStack::SubtreeStack(std::int64_t total, const Range& run)
    : total_(total), run_(run), roots_(maximal_subtrees(total, run)), end_(run.begin) {
  const auto most = static_cast<std::size_t>(2 * tree_slots(total));  // of a run, and that wait
  nodes_.reserve(most);
  fresh_.reserve(most);
  waiting_.reserve(2 * most);
  joins_.reserve(2 * most);
}

void SubtreeStack::restart() {
  end_ = run_.begin;
  root_ = 0;
  fresh_.clear();
  waiting_.clear();
  joins_.clear();
}

std::span<const SubtreeStack::Subtree> SubtreeStack::advance(std::int64_t end) {
  WEFT_CHECK(end_ <= end && end <= run_.end, "parts up to {}, after {} of [{}, {})", end, end_,
             run_.begin, run_.end);
  fresh_.clear();
  joins_.clear();
  nodes_.clear();
  maximal_subtrees(total_, {end_, end}, nodes_);
  for (const Range& node : nodes_) {
    place(node);
  }
  end_ = end;
  for (const Subtree& fresh : fresh_) {
    waiting_.push_back(fresh);
    join();
  }
  return fresh_;
}

/// Slots are taken in order, after those of all sums that wait.
void SubtreeStack::place(const Range& node) {
  while (roots_[root_].end <= node.begin) {
    ++root_;
  }
  std::int64_t slot = kOfRoot;
  if (node.begin != roots_[root_].begin) {
    slot = 0;
    for (const auto* list : {&waiting_, &fresh_}) {
      for (const Subtree& taken : *list) {
        slot = std::max(slot, taken.slot + 1);
      }
    }
  }
  fresh_.push_back({.node = node, .root = static_cast<std::int64_t>(root_), .slot = slot});
}

/// The last of those that wait with what is before it, as far up as siblings go.
void SubtreeStack::join() {
  while (waiting_.size() >= 2) {
    const Subtree later = waiting_.back();
    Subtree& earlier = waiting_[waiting_.size() - 2];
    const Range both{earlier.node.begin, later.node.end};
    if (earlier.root != later.root || !is_subtree(total_, both)) {
      break;
    }
    joins_.push_back({.earlier = earlier, .later = later});
    earlier.node = both;
    waiting_.pop_back();
  }
  const Subtree& last = waiting_.back();
  if (last.node == roots_[at(last.root)]) {
    waiting_.pop_back();  // it waits for nothing
  }
}

SubtreeNeeds subtree_needs(std::int64_t total, const Range& run, const MicroBatches& cuts) {
  SubtreeNeeds needs;
  const auto advance = [&](SubtreeStack& stack, std::int64_t end) {
    const auto subtrees = stack.advance(end);
    needs.at_once = std::max(needs.at_once, static_cast<std::int64_t>(subtrees.size()));
    for (const SubtreeStack::Subtree& one : subtrees) {
      needs.slots = std::max(needs.slots, one.slot + 1);
    }
  };
  SubtreeStack stepwise(total, run);
  for (std::int64_t cut = 0; cut < cuts.count(); ++cut) {
    SubtreeStack rest = stepwise;
    advance(rest, run.end);
    advance(stepwise, cuts.parts(run, cut).end);
  }
  return needs;
}

}  // namespace weft
