#include "weft/train/control.h"

#include <cstring>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"

namespace weft::train {
namespace {

struct Header {
  std::int64_t stop = 0;
  std::int64_t has_previous = 0;
  std::int64_t overflow_count = 0;
  std::int64_t overflow_table = -1;
  std::int64_t overflow_row = -1;
  CodecReport codecs;
};

/// Of tables the lowest.
void add_report(const CodecReport& from, CodecReport& to) {
  to.clips.forward += from.clips.forward;
  to.clips.backward += from.clips.backward;
  to.dense += from.dense;
  to.sync += from.sync;
  if (from.table >= 0 && (to.table < 0 || from.table < to.table)) {
    to.table = from.table;
  }
}

}  // namespace

ControlCodec::ControlCodec(std::int64_t parts, std::int64_t ranks, std::int64_t tasks)
    : parts_(parts),
      ranks_(ranks),
      tasks_(tasks),
      parts_per_rank_((parts + ranks - 1) / ranks),
      bytes_(static_cast<std::int64_t>(sizeof(Header)) +
             parts_per_rank_ * tasks *
                 static_cast<std::int64_t>(sizeof(double) + sizeof(metrics::BinarySums))),
      weights_(at(tasks)),
      sums_(at(tasks)) {
}

void ControlCodec::encode(const LocalControl& local,
                          std::int64_t rank,
                          std::span<std::byte> out) const {
  WEFT_CHECK(static_cast<std::int64_t>(out.size()) == bytes_);
  const std::size_t entries = at(rank_parts(parts_, ranks_, rank).size() * tasks_);
  WEFT_CHECK(local.weights.size() == entries && local.previous.size() == entries);
  const Header header{.stop = local.stop ? 1 : 0,
                      .has_previous = local.has_previous ? 1 : 0,
                      .overflow_count = local.overflow.count,
                      .overflow_table = local.overflow.table,
                      .overflow_row = local.overflow.row,
                      .codecs = local.codecs};
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), &header, sizeof(header));
  std::byte* weights = out.data() + sizeof(header);
  std::byte* sums = weights + at(parts_per_rank_ * tasks_) * sizeof(double);
  std::memcpy(weights, local.weights.data(), entries * sizeof(double));
  std::memcpy(sums, local.previous.data(), entries * sizeof(metrics::BinarySums));
}

void ControlCodec::merge(const std::function<std::span<const std::byte>(std::int64_t)>& block,
                         GlobalControl& global) {
  global.stop = false;
  global.has_previous = false;
  global.overflow = {};
  global.overflow_rank = -1;
  global.codecs = {};
  for (std::size_t t = 0; t < at(tasks_); ++t) {
    weights_[t].clear();
    sums_[t].clear();
  }
  for (std::int64_t r = 0; r < ranks_; ++r) {
    const auto bytes = block(r);
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    global.stop |= header.stop != 0;
    global.has_previous |= header.has_previous != 0;
    if (header.overflow_count > 0 && global.overflow_rank < 0) {
      global.overflow_rank = r;
      global.overflow.table = header.overflow_table;
      global.overflow.row = header.overflow_row;
    }
    global.overflow.count += header.overflow_count;
    add_report(header.codecs, global.codecs);
    const std::byte* weight = bytes.data() + sizeof(header);
    const std::byte* sum = weight + at(parts_per_rank_ * tasks_) * sizeof(double);
    for (std::int64_t p = 0; p < rank_parts(parts_, ranks_, r).size(); ++p) {
      for (std::size_t t = 0; t < at(tasks_); ++t) {
        std::memcpy(&weights_[t].emplace_back(), weight, sizeof(double));
        std::memcpy(&sums_[t].emplace_back(), sum, sizeof(metrics::BinarySums));
        weight += sizeof(double);
        sum += sizeof(metrics::BinarySums);
      }
    }
  }
  global.weights.resize(at(tasks_));
  global.previous.resize(at(tasks_));
  for (std::size_t t = 0; t < at(tasks_); ++t) {
    global.weights[t] = sum_parts(weights_[t]);
    global.previous[t] = metrics::sum_parts(sums_[t]);
  }
}

}  // namespace weft::train
