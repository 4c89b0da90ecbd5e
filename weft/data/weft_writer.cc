#include <algorithm>
#include <iterator>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"
#include "weft/data/weft_output.h"

namespace weft::data {

namespace {

// A block is closed early before a column has more ids than its 32-bit offsets can count.
constexpr std::size_t kMaxBlockIds = std::size_t{1} << 28;

}  // namespace

WeftWriter::WeftWriter(std::string path, Schema schema, WeftWriterOptions options)
    : schema_(std::move(schema)), block_samples_(options.block_samples) {
  if (block_samples_ < 1 || block_samples_ > layout::kMaxBlockSamples) {
    fail(ErrorCode::kUsage, "blocks of {} samples; a weft file has 1 to {} per block",
         block_samples_, layout::kMaxBlockSamples);
  }
  output_ = std::make_unique<WeftOutput>(std::move(path), schema_, std::move(options.metadata));
  encoded_ = std::make_unique<layout::EncodedBlock>();
  pending_.reset(schema_);
}

WeftWriter::~WeftWriter() = default;

void WeftWriter::append(const RawBlock& block) {
  WEFT_CHECK(output_->open(), "append after finish");
  layout::check_block(block, schema_);
  for (std::int64_t first = 0; first < block.size;) {
    const std::int64_t room = block_samples_ - pending_.size;
    const std::int64_t count = std::min(room, block.size - first);
    take(block, first, count);
    first += count;
    const bool many_ids =
        std::any_of(pending_.categorical.begin(), pending_.categorical.end(),
                    [](const RawBlock::Bags& bags) { return bags.ids.size() >= kMaxBlockIds; });
    if (pending_.size == block_samples_ || many_ids) {
      write_pending();
    }
  }
}

// Copies samples [first, first + count) of `block` to the end of the pending ones.
void WeftWriter::take(const RawBlock& block, std::int64_t first, std::int64_t count) {
  const auto floats = [&](const std::vector<float>& from, std::vector<float>& to) {
    to.insert(to.end(), from.begin() + first, from.begin() + first + count);
  };
  for (std::size_t i = 0; i < block.dense.size(); ++i) {
    floats(block.dense[i], pending_.dense[i]);
  }
  for (std::size_t i = 0; i < block.labels.size(); ++i) {
    floats(block.labels[i], pending_.labels[i]);
  }
  for (std::size_t i = 0; i < block.categorical.size(); ++i) {
    const RawBlock::Bags& from = block.categorical[i];
    RawBlock::Bags& to = pending_.categorical[i];
    if (to.offsets.empty()) {
      to.offsets.push_back(0);
    }
    const std::int64_t begin = from.offsets[static_cast<std::size_t>(first)];
    const std::int64_t end = from.offsets[static_cast<std::size_t>(first + count)];
    const std::int64_t shift = to.offsets.back() - begin;
    std::transform(from.offsets.begin() + first + 1, from.offsets.begin() + first + count + 1,
                   std::back_inserter(to.offsets),
                   [shift](std::int64_t offset) { return offset + shift; });
    to.ids.insert(to.ids.end(), from.ids.begin() + begin, from.ids.begin() + end);
    if (schema_.categorical[i].weighted) {
      to.weights.insert(to.weights.end(), from.weights.begin() + begin, from.weights.begin() + end);
    }
  }
  pending_.size += count;
}

void WeftWriter::write_pending() {
  layout::encode_block(pending_, schema_, *encoded_);
  output_->write(*encoded_);
  pending_.reset(schema_);
}

void WeftWriter::finish() {
  if (pending_.size > 0) {
    write_pending();
  }
  output_->finish();
}

}  // namespace weft::data
