#include "weft/train/step_report.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"

namespace weft::train {
namespace {

/// The fixed part of a block on the wire.
struct Header {
  NonFinite non_finite;
  CodecReport codecs;
  std::int64_t late_step = 0;
  sharding::TableOverflow overflow;
  std::int64_t overflow_rank = -1;
};

}  // namespace

CodecReport& CodecReport::operator+=(const CodecReport& other) {
  clips.forward += other.clips.forward;
  clips.backward += other.clips.backward;
  dense += other.dense;
  sync += other.sync;
  if (other.table >= 0 && (table < 0 || other.table < table)) {
    table = other.table;
  }
  return *this;
}

void MergeSums::operator()(metrics::BinarySums& sums, const metrics::BinarySums& later) const {
  if (sums.count == 0) {
    sums = later;
  } else if (later.count > 0) {
    sums.merge(later);
  }
}

std::int64_t StepReport::bytes() const {
  return static_cast<std::int64_t>(sizeof(Header)) +
         decltype(sums)::encoded_bytes(most_subtrees(parts_), tasks_);
}

void StepReport::clear() {
  non_finite = {};
  sums.assign({0, 0}, {});
  codecs = {};
  late_step = 0;
  overflow = {};
  overflow_rank = -1;
}

void StepReport::append(const StepReport& right) {
  const NonFinite& other = right.non_finite;
  if (other.position >= 0 && (non_finite.position < 0 || other.position < non_finite.position)) {
    non_finite = other;
  }
  sums.append(right.sums);
  codecs += right.codecs;
  late_step = std::max(late_step, right.late_step);
  if (overflow_rank < 0) {
    overflow_rank = right.overflow_rank;
    overflow.table = right.overflow.table;
    overflow.row = right.overflow.row;
  }
  overflow.count += right.overflow.count;
}

void StepReport::encode(std::span<std::byte> out) const {
  WEFT_CHECK(static_cast<std::int64_t>(out.size()) == bytes());
  const Header header{.non_finite = non_finite,
                      .codecs = codecs,
                      .late_step = late_step,
                      .overflow = overflow,
                      .overflow_rank = overflow_rank};
  std::memcpy(out.data(), &header, sizeof(header));
  sums.encode(out.subspan(sizeof(header)));
}

void StepReport::decode(std::span<const std::byte> in) {
  WEFT_CHECK(static_cast<std::int64_t>(in.size()) == bytes());
  Header header;
  std::memcpy(&header, in.data(), sizeof(header));
  non_finite = header.non_finite;
  codecs = header.codecs;
  late_step = header.late_step;
  overflow = header.overflow;
  overflow_rank = header.overflow_rank;
  sums.decode(in.subspan(sizeof(header)));
}

}  // namespace weft::train
