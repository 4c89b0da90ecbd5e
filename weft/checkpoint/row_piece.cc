#include "weft/checkpoint/row_piece.h"

#include "weft/base/at.h"

namespace weft::checkpoint {
namespace {

using rowfile::RowId;

constexpr std::int64_t kRowPieceBytes = std::int64_t{1} << 20;

}  // namespace

void Tombstones::add(const StreamPlace& place,
                     const rowfile::Tombstone& tombstone,
                     std::size_t segment) {
  removals_[{place.table, tombstone.id}].push_back({segment, tombstone.before, cols_of(place)});
}

bool Tombstones::removes(const StreamPlace& place,
                         RowId id,
                         std::size_t segment,
                         const rowfile::Place& at_place) const {
  const auto found = removals_.empty() ? removals_.end() : removals_.find({place.table, id});
  if (found == removals_.end()) {
    return false;
  }
  const Range cols = cols_of(place);
  return std::any_of(found->second.begin(), found->second.end(), [&](const Removal& removal) {
    const bool later =
        removal.segment > segment || (removal.segment == segment && at_place < removal.before);
    return later && std::max(cols.begin, removal.cols.begin) < std::min(cols.end, removal.cols.end);
  });
}

void RowPiece::begin(const RowPieceContext& context,
                     std::shared_ptr<const OpenSegment> segment,
                     std::size_t stream) {
  context_ = &context;
  segment_ = std::move(segment);
  stream_ = stream;
  groups_.clear();
  ids_.clear();
}

bool RowPiece::takes(const rowfile::GroupIds& group) const {
  return groups_.empty() || (group.stream == stream_ && bytes() + group_bytes() <= kRowPieceBytes);
}

void RowPiece::add(const rowfile::GroupIds& group) {
  groups_.push_back({group.stream, group.block, std::ssize(group.ids)});
  ids_.insert(ids_.end(), group.ids.begin(), group.ids.end());
}

void RowPiece::read() {
  read_groups();
  const std::vector<RowSelection>& selections = segment_->streams[stream_].selections;
  batches_.resize(selections.size());
  if (selections.empty()) {
    return;
  }
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    batches_[b].begin(selections[b], ids_.size());
  }
  const RowId* ids = ids_.data();
  const std::byte* group_begin = bytes_.data();
  for (const rowfile::GroupPlace& group : groups_) {
    select(group, ids, group_begin + rowfile::kBlockHeaderBytes);
    ids += group.rows;
    group_begin += group_bytes();
  }
  for (RowBatch& batch : batches_) {
    batch.prepare();
  }
}

/// Those that lie one behind the other at once.
void RowPiece::read_groups() {
  const std::int64_t size = group_bytes();
  bytes_.resize(at(bytes()));
  const std::span groups(groups_);
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= groups.size(); ++i) {
    if (i < groups.size() &&
        (groups[i].block - groups[i - 1].block) * rowfile::kBlockBytes == size) {
      continue;
    }
    segment_->reader.read_groups(
        groups.subspan(begin, i - begin),
        std::span(bytes_).subspan(begin * at(size), (i - begin) * at(size)));
    begin = i;
  }
}

void RowPiece::select(const rowfile::GroupPlace& group, const RowId* ids, const std::byte* rows) {
  const WantedStream& stream = segment_->streams[stream_];
  const std::int64_t size = row_bytes();
  for (std::int64_t i = 0; i < group.rows; ++i, rows += size) {
    const RowId id = ids[i];
    context_->segments.check_id(stream.place, id);
    if (context_->tombstones.removes(stream.place, id, segment_->order,
                                     {group.block, static_cast<std::uint32_t>(i)})) {
      continue;
    }
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      if (stream.selections[b].wants(id)) {
        batches_[b].add(id, rows);
      }
    }
  }
}

void RowPiece::hand_over() {
  for (RowBatch& batch : batches_) {
    context_->progress.add(batch.hand_over());
  }
  segment_.reset();
}

}  // namespace weft::checkpoint
