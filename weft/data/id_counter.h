/// Private to data/: how often each id occurs, exactly up to a number of distinct ids.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::data {

/// Counts ids in an open-addressing table. Once `limit` distinct ids are in it, new ones are only
/// estimated: HyperLogLog (Flajolet et al., AofA 2007) with 2^14 registers over all ids, standard
/// error 1.04 / sqrt(2^14) = 0.8 %.
class IdCounter {
 public:
  explicit IdCounter(std::int64_t limit);

  void add(std::int64_t id);

  [[nodiscard]] bool exact() const { return !overflowed_; }

  /// Distinct ids: counted, or estimated.
  [[nodiscard]] std::int64_t distinct() const;

  /// The counted ids, in no particular order.
  [[nodiscard]] std::vector<std::int64_t> ids() const;

  struct Count {
    std::int64_t id = 0;
    std::int64_t count = 0;
  };

  /// The `most` counted ids that occurred most, most frequent first, equal ones by their number.
  [[nodiscard]] std::vector<Count> most_frequent(std::int64_t most) const;

  /// Occurrences of the counted ids, most frequent first.
  [[nodiscard]] std::vector<std::int64_t> descending_counts() const;

 private:
  struct Slot {
    std::int64_t id;
    std::int64_t count;  // 0: free
  };

  void grow();
  [[nodiscard]] double estimate() const;

  std::size_t limit_;
  std::size_t used_ = 0;
  bool overflowed_ = false;
  std::vector<Slot> slots_;
  std::vector<std::uint8_t> registers_;
};

}  // namespace weft::data
