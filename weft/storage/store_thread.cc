// The thread of a SegmentStore: it appends rows to segments, seals, cleans and removes them.
#include <algorithm>
#include <cerrno>
#include <exception>
#include <string_view>
#include <utility>

#include "weft/rowfile/name_stream.h"
#include "weft/storage/store_core.h"

namespace weft::storage {
namespace {

std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

/// Seals come first, for somebody waits; then space is brought within its bounds; then rows that
/// wait are appended, so that those who write too fast for the disk wait.
void StoreCore::run() {
  Lock lock(mutex_);
  std::optional<Error> failure;
  try {
    while (!is_ending_) {
      if (!requests_.empty() && requests_.front()->after <= buffer_.taken()) {
        serve(lock);
      } else if (cleaning_stops_ == 0 && clean(lock)) {
        changed_.notify_all();
      } else if (buffer_.has_queued()) {
        append(lock, buffer_.take());
        ++appended_;
        changed_.notify_all();
      } else {
        work_.wait(lock);
      }
    }
    return;
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(ErrorCode::kResource, fmt::format("rows cannot be written to '{}': {}",
                                                      options_.directories.front(), error.what()));
  }
  if (!lock.owns_lock()) {
    lock.lock();
  }
  failure_ = failure;
  requests_.clear();
  changed_.notify_all();
}

/// What is to be appended of a chunk, shard by shard: rows that still hold; of a frozen one, all.
void StoreCore::order_rows(Chunk& chunk, std::uint32_t number) {
  chunk.order.clear();
  for (std::uint32_t i = 0; i < chunk.rows.size(); ++i) {
    const BufferedRow& row = chunk.rows[i];
    StoredRows& shard = *shards_[row.shard];
    const PlaceCode code = PlaceCode::in_buffer(number, i);
    if (options_.left_out == StoreRule::kBufferedRows && !chunk.is_moved) {
      point(shard, row.row, code);
    }
    if (chunk.is_frozen || shard.index.get(row.row) == code) {
      chunk.order.push_back(i);
    }
  }
  std::stable_sort(chunk.order.begin(), chunk.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return chunk.rows[a].shard < chunk.rows[b].shard;
  });
}

void StoreCore::append(Lock& lock, std::uint32_t number) {
  Chunk& chunk = buffer_.chunk(number);
  chunk.state = Chunk::State::kTaken;
  order_rows(chunk, number);
  for (std::size_t i = streams_.size(); i < shards_.size(); ++i) {
    streams_.push_back(shards_[i].get());
  }
  lock.unlock();
  for (std::size_t first = 0; first < chunk.order.size();) {
    first = append_run(lock, chunk, first);
  }
  lock.lock();
  unlanded_.push_back(number);
  if (!chunk.is_moved) {
    buffer_.release_room(number);
  }
  land();
}

/// Appends rows of one shard from `first` of the chunk's order on, as far as the open segment has
/// room. Returns the first that follows.
std::size_t StoreCore::append_run(Lock& lock, Chunk& chunk, std::size_t first) {
  const Kind kind = chunk.is_moved ? Kind::kMoved : Kind::kFresh;
  OpenSegment& open = open_segment(lock, kind);
  const std::uint32_t shard_number = chunk.rows[chunk.order[first]].shard;
  const StoreShard& shard = streams_[shard_number]->shard();
  const CountedRow counted = streams_[shard_number]->counted();
  std::int64_t room = options_.segment_bytes - open.writer.bytes();
  std::size_t end = first;
  ids_.clear();
  run_bytes_.clear();
  while (end < chunk.order.size() && chunk.rows[chunk.order[end]].shard == shard_number &&
         (end == first || room > 0)) {
    const BufferedRow& row = chunk.rows[chunk.order[end]];
    const std::byte* const bytes = chunk.bytes.data() + row.offset;
    ids_.push_back(static_cast<rowfile::RowId>(shard.rows.row(row.row)));
    run_bytes_.insert(run_bytes_.end(), bytes, bytes + shard.row_bytes);
    room -= counted.bytes;
    ++end;
  }
  places_.resize(ids_.size());
  open.writer.append(streams_[shard_number]->stream(), ids_, run_bytes_, places_);

  lock.lock();
  StoredRows& rows = *shards_[shard_number];
  for (std::size_t i = first; i < end; ++i) {
    BufferedRow& row = chunk.rows[chunk.order[i]];
    row.place = PlaceCode::in_segment(open.slot, places_[i - first]);
    const bool holds =
        rows.index.get(row.row) == PlaceCode::in_buffer(chunk.number, chunk.order[i]);
    segments_.append(open.slot, counted, holds);
    if (holds && options_.left_out == StoreRule::kWholeRows) {
      rows.index.set(row.row, row.place);
    }
  }
  (chunk.is_moved ? counts_.rows_moved : counts_.rows_stored) +=
      static_cast<std::int64_t>(end - first);
  lock.unlock();
  if (open.writer.bytes() >= options_.segment_bytes) {
    seal_open(lock, kind);
  }
  return end;
}

/// The segment that rows are appended to; opens one where there is none with all streams.
StoreCore::OpenSegment& StoreCore::open_segment(Lock& lock, Kind kind) {
  std::unique_ptr<OpenSegment>& open = open_of(kind);
  if (open != nullptr && open->writer.streams().size() < streams_.size() + 1) {
    seal_open(lock, kind);
  }
  if (open != nullptr) {
    return *open;
  }
  const std::string path = directories_.next_path();
  std::vector<rowfile::Stream> streams = {rowfile::name_stream(name_in(path))};
  for (const StoredRows* shard : streams_) {
    streams.push_back({shard->shard().key, shard->row_bytes()});
  }
  const std::uint64_t key = streams.front().key;
  rowfile::SegmentWriter writer(files_, path, std::move(streams));
  auto file = std::make_shared<OpenFile>(*reads_, path, io::OpenMode::kRead);
  lock.lock();
  SegmentPosition position{turn_, kind == Kind::kFresh, ++last_number_};
  if (kind == Kind::kFresh) {
    position.turn = ++turn_;
  } else if (open_of(Kind::kFresh) == nullptr) {
    position.turn = turn_ + 1;
  }
  StoreSegment segment;
  segment.path = path;
  segment.key = key;
  segment.position = position;
  segment.file = std::move(file);
  segment.live_of_shard.resize(shards_.size());
  segment.pins = static_cast<int>(requests_.size());
  const std::uint32_t slot = segments_.add(std::move(segment));
  for (const auto& request : requests_) {
    request->pinned.push_back(slot);  // rows that it needs may come here, and be written again
  }
  lock.unlock();
  open = std::make_unique<OpenSegment>(OpenSegment{slot, position, path, std::move(writer)});
  return *open;
}

void StoreCore::seal_open(Lock& lock, Kind kind) {
  const std::unique_ptr<OpenSegment> open = std::move(open_of(kind));
  const std::int64_t bytes = open->writer.bytes();
  open->writer.seal();
  auto file = std::make_shared<OpenFile>(*reads_, open->path, io::OpenMode::kReadDirect);
  lock.lock();
  StoreSegment& segment = segments_.get(open->slot);
  segment.bytes = bytes;
  segment.file.swap(file);
  ++counts_.segments_made;
  counts_.bytes_written += bytes;
  land();
  lock.unlock();
}

/// Whether an appended row lies whole in its file.
bool StoreCore::is_whole(const BufferedRow& row) const {
  for (const auto& open : open_) {
    if (open != nullptr && open->slot == row.place.segment()) {
      return options_.left_out == StoreRule::kWholeRows ||
             open->writer.buffered_row(shards_[row.shard]->stream(), row.place.place()).empty();
    }
  }
  return true;  // it is sealed
}

/// Rows that lie whole in their files are read there from now on. Rows of a chunk that is waited
/// for lie in the open segments, or in sealed ones that have not been looked at: none has been
/// removed.
void StoreCore::land() {
  std::erase_if(unlanded_, [this](std::uint32_t number) {
    Chunk& chunk = buffer_.chunk(number);
    for (; chunk.landed < chunk.order.size(); ++chunk.landed) {
      const std::uint32_t index = chunk.order[chunk.landed];
      const BufferedRow& row = chunk.rows[index];
      if (!is_whole(row)) {
        return false;
      }
      PlaceIndex& places = shards_[row.shard]->index;
      if (places.get(row.row) == PlaceCode::in_buffer(number, index)) {
        places.set(row.row, row.place);
      }
    }
    buffer_.free(number);
    return true;
  });
}

/// Removes a segment without rows that hold, or moves those of one; false where there is nothing to
/// do.
bool StoreCore::clean(Lock& lock) {
  if (auto dead = segments_.take_dead()) {
    lock.unlock();
    dead->file.reset();
    const auto error = files_.remove(dead->path);
    if (error && error != io::error_of(ENOENT)) {
      fail(ErrorCode::kIo, "cannot remove '{}', of which no row holds: {}", dead->path,
           io::describe_write_error(error));
    }
    lock.lock();
    ++counts_.segments_removed;
    return true;
  }
  const auto victim = segments_.victim({options_.space_factor, options_.segment_bytes});
  if (!victim) {
    return false;
  }
  is_moving_ = true;
  move_rows(lock, *victim);
  is_moving_ = false;
  return true;
}

void StoreCore::move_rows(Lock& lock, std::uint32_t slot) {
  const std::string path = segments_.get(slot).path;
  const SegmentPosition position = segments_.get(slot).position;
  lock.unlock();
  const auto& open = open_of(Kind::kMoved);
  const bool comes_before = open == nullptr || position < open->position;
  if (!comes_before) {
    seal_open(lock, Kind::kMoved);
  }
  const rowfile::SegmentReader reader(files_, path);
  reader.for_each_row([&](const rowfile::GroupRows& rows) {
    lock.lock();
    move_group(lock, slot, rows);
    lock.unlock();
  });
  lock.lock();
  flush_moved(lock);
  WEFT_CHECK(segments_.get(slot).live_rows == 0, "{} rows stayed in '{}'",
             segments_.get(slot).live_rows, path);
}

/// From now on the rows are in memory, so their segment may go; they are appended like others.
void StoreCore::move_group(Lock& lock, std::uint32_t slot, const rowfile::GroupRows& rows) {
  StoredRows& shard = *shards_[rows.group.stream - 1];
  const std::int64_t row_bytes = shard.row_bytes();
  for (std::uint32_t i = 0; i < rows.group.ids.size(); ++i) {
    const std::int64_t row = shard.shard().rows.index(static_cast<std::int64_t>(rows.group.ids[i]));
    const PlaceCode code = PlaceCode::in_segment(slot, {rows.group.block, i});
    if (shard.index.get(row) != code) {
      continue;
    }
    if (moving_ >= 0 &&
        !buffer_.has_room(buffer_.chunk(static_cast<std::uint32_t>(moving_)), row_bytes)) {
      flush_moved(lock);
      if (shard.index.get(row) != code) {
        continue;  // it was written meanwhile
      }
    }
    if (moving_ < 0) {
      moving_ = buffer_.make_moved_chunk(row_bytes);
    }
    const PlaceCode moved =
        buffer_.put(static_cast<std::uint32_t>(moving_), {shard.number(), 0, row, {}},
                    rows.rows.subspan(i * at(row_bytes), at(row_bytes)));
    point(shard, row, moved);
  }
}

void StoreCore::flush_moved(Lock& lock) {
  if (moving_ >= 0) {
    append(lock, static_cast<std::uint32_t>(std::exchange(moving_, -1)));
  }
}

void StoreCore::serve(Lock& lock) {
  lock.unlock();
  for (const Kind kind : {Kind::kMoved, Kind::kFresh}) {
    if (open_of(kind) != nullptr) {
      seal_open(lock, kind);
    }
  }
  directories_.sync();
  lock.lock();
  const std::shared_ptr<SealRequest> served = std::move(requests_.front());
  SealRequest& request = *served;
  requests_.pop_front();
  std::sort(request.pinned.begin(), request.pinned.end(), [this](std::uint32_t a, std::uint32_t b) {
    return segments_.get(a).position < segments_.get(b).position;
  });
  for (const std::uint32_t slot : request.pinned) {
    const StoreSegment& segment = segments_.get(slot);
    SealedFile& file = request.seal.files.emplace_back();
    file.path = segment.path;
    file.bytes = segment.bytes;
    file.rows = segment.rows;
    file.key = segment.key;
    file.is_new = is_new(segment);
    file.live_rows = segment.live_of_shard;
  }
  seals_.emplace(request.seal.number, std::move(request.pinned));
  request.last_number = last_number_;
  marked_ = request.is_marked ? last_number_ : marked_;
  if (std::exchange(request.stops_cleaning, false)) {
    --cleaning_stops_;
  }
  if (request.is_given_up) {
    let_go(request.seal.number);
  }
  request.is_done = true;
  changed_.notify_all();
}

}  // namespace weft::storage
