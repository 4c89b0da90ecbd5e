/// Shards: which rank of a plan has which block of a table. A regular cut is one rule however many
/// ranks it has, in memory as in a plan's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "weft/base/cut.h"
#include "weft/base/parts.h"

namespace weft::spec {

/// A block of a table on one rank. data_parallel: one whole shard per rank.
using Shard = RankBlock;

/// The shards of a table, ascending by (row, column), as a list that is read only. What is made of
/// shards is one rule if there is one that has them, else a rule for each shard; so equal lists
/// have equal rules. Cost: an element is computed when it is asked for, in O(1).
class Shards {
 public:
  class Iterator;

  Shards() = default;
  Shards(std::vector<Shard> list);

  Shards(std::initializer_list<Shard> list) : Shards(std::vector<Shard>(list)) {}

  /// Rules as they stand in a file: those that are not sound (CutRule::is_sound()) count as one
  /// shard. Until they have been made shards again an element costs O(rules), and equality is that
  /// of the rules.
  static Shards as_written(std::vector<CutRule> rules);

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] bool empty() const { return size_ == 0; }

  [[nodiscard]] Shard operator[](std::size_t i) const;

  [[nodiscard]] Shard front() const { return (*this)[0]; }

  [[nodiscard]] Shard back() const { return (*this)[size_ - 1]; }

  /// Valid as long as these shards do not change.
  [[nodiscard]] Iterator begin() const;
  /// Behind the last of them.
  [[nodiscard]] Iterator end() const;

  /// One after the other.
  [[nodiscard]] std::vector<Shard> list() const;

  /// Makes shards of what `edit` leaves of that list.
  template <typename Edit>
  void edit(const Edit& edit) {
    std::vector<Shard> all = list();
    edit(all);
    *this = Shards(std::move(all));
  }

  [[nodiscard]] const std::vector<CutRule>& rules() const { return rules_; }

  friend bool operator==(const Shards&, const Shards&) = default;

 private:
  std::vector<CutRule> rules_;
  std::size_t size_ = 0;
};

/// Makes shards while it goes through them. Any step is O(1).
class Shards::Iterator {
 public:
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::input_iterator_tag;  // what it points to is not in memory
  using value_type = Shard;
  using difference_type = std::ptrdiff_t;
  using reference = Shard;
  using pointer = void;

  Iterator() = default;

  Iterator(const Shards& shards, std::size_t at) : shards_(&shards), at_(at) {}

  Shard operator*() const { return (*shards_)[at_]; }

  Shard operator[](difference_type n) const { return *(*this + n); }

  Iterator& operator+=(difference_type n) {
    at_ = static_cast<std::size_t>(static_cast<difference_type>(at_) + n);
    return *this;
  }

  Iterator& operator-=(difference_type n) { return *this += -n; }

  Iterator& operator++() { return *this += 1; }

  Iterator& operator--() { return *this -= 1; }

  Iterator operator++(int) {
    const Iterator before = *this;
    ++*this;
    return before;
  }

  Iterator operator--(int) {
    const Iterator before = *this;
    --*this;
    return before;
  }

  friend Iterator operator+(Iterator it, difference_type n) { return it += n; }

  friend Iterator operator+(difference_type n, Iterator it) { return it += n; }

  friend Iterator operator-(Iterator it, difference_type n) { return it -= n; }

  friend difference_type operator-(const Iterator& a, const Iterator& b) {
    return static_cast<difference_type>(a.at_) - static_cast<difference_type>(b.at_);
  }

  friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

  friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

 private:
  const Shards* shards_ = nullptr;
  std::size_t at_ = 0;
};

/// As declared.
inline Shards::Iterator Shards::begin() const {
  return {*this, 0};
}

/// As declared.
inline Shards::Iterator Shards::end() const {
  return {*this, size_};
}

}  // namespace weft::spec
