// What callers do in a SegmentStore: write rows, look places up, seal.
#include "weft/storage/store_core.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace weft::storage {
namespace {

/// Bytes that a row takes in a segment when its groups are full: its share of a group, and its id.
std::int64_t stored_bytes(std::int64_t row_bytes) {
  const std::int64_t rows = rowfile::rows_per_group(row_bytes);
  return (rowfile::group_bytes(row_bytes) + rows - 1) / rows +
         static_cast<std::int64_t>(sizeof(rowfile::RowId));
}

}  // namespace

StoredRows::StoredRows(StoreCore& core, std::uint32_t number, StoreShard shard)
    : index(shard.rows.size()),
      core_(core),
      number_(number),
      shard_(std::move(shard)),
      counted_{number, stored_bytes(shard_.row_bytes)} {
}

std::unique_ptr<RowReads> StoredRows::make_reads() {
  return make_stored_row_reads(core_, *this);
}

void StoredRows::write(std::span<const std::int64_t> rows, const std::byte* packed) {
  try {
    core_.write(*this, rows, packed);
  } catch (const Error& error) {
    rethrow(error);
  }
}

void StoredRows::drain() {
  try {
    core_.drain();
  } catch (const Error& error) {
    rethrow(error);
  }
}

std::int64_t StoredRows::rows_held() const {
  return core_.rows_held(*this);
}

void StoredRows::for_each_row(const RowsVisitor& visit) const {
  try {
    core_.for_each_row(*this, visit);
  } catch (const Error& error) {
    rethrow(error);
  }
}

RowFiles* StoredRows::files() const {
  return &core_;
}

void StoredRows::rethrow(const Error& error) const {
  throw Error(error.code(), fmt::format("table '{}': {}", shard_.table, error.what()),
              error.origin_rank());
}

StoreCore::StoreCore(io::FileSystem& files, const SegmentStoreOptions& options)
    : files_(files),
      options_(options),
      directories_(files, options),
      reads_(io::make_block_reads(files, options.reads)),
      read_memory_(*reads_, kMostReadBytes),
      buffer_(options.write_buffer_bytes) {
  WEFT_CHECK(options.space_factor > 1, "a space factor of {}", options.space_factor);
  WEFT_CHECK(0 < options.segment_bytes &&
             options.segment_bytes <= rowfile::kBlockBytes * (PlaceCode::kMaxBlocks / 2));
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    fail(ErrorCode::kResource, "cannot start the thread that writes rows to '{}': {}",
         options.directories.front(), error.what());
  }
}

StoreCore::~StoreCore() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  work_.notify_all();
  thread_.join();
  for (const std::uint32_t slot : segments_.in_order()) {
    static_cast<void>(files_.remove(segments_.get(slot).path));
  }
}

RowBacking& StoreCore::add_shard(const StoreShard& shard) {
  const Lock lock(mutex_);
  const auto number = static_cast<std::uint32_t>(shards_.size());
  WEFT_CHECK(number + 1 < rowfile::kMaxStreams, "{} shards", number);
  WEFT_CHECK(1 <= shard.row_bytes && shard.row_bytes <= rowfile::kMaxRowBytes,
             "rows of {} bytes of table '{}'", shard.row_bytes, shard.table);
  for (const auto& other : shards_) {
    WEFT_CHECK(other->shard().key != shard.key, "two shards have the key {:016x}", shard.key);
  }
  shards_.push_back(std::make_unique<StoredRows>(*this, number, shard));
  for (const std::uint32_t slot : segments_.in_order()) {
    segments_.get(slot).live_of_shard.resize(shards_.size());
  }
  return *shards_.back();
}

void StoreCore::check_usable() const {
  if (failure_) {
    throw Error(*failure_);
  }
}

void StoreCore::write(StoredRows& shard,
                      std::span<const std::int64_t> rows,
                      const std::byte* packed) {
  const std::int64_t row_bytes = shard.row_bytes();
  Lock lock(mutex_);
  check_usable();
  for (const std::int64_t row : rows) {
    WEFT_CHECK(0 <= row && row < shard.shard().rows.size(), "row {}", row);
    const std::span bytes(packed, at(row_bytes));
    packed += row_bytes;
    ++counts_.rows_written;
    if (replace_in_buffer(shard, row, bytes)) {
      ++counts_.rows_replaced;
      continue;
    }
    wait_for_room(lock, row_bytes);
    const std::uint64_t queued = buffer_.queued();
    const PlaceCode code = buffer_.put({shard.number(), 0, row, {}}, bytes);
    if (options_.left_out != StoreRule::kBufferedRows) {
      point(shard, row, code);
    }
    if (buffer_.queued() != queued) {
      work_.notify_one();
    }
  }
}

/// Rows that the thread has not taken yet may change where they are.
bool StoreCore::replace_in_buffer(StoredRows& shard,
                                  std::int64_t row,
                                  std::span<const std::byte> bytes) {
  const PlaceCode code = shard.index.get(row);
  if (!code.is_buffered()) {
    return false;
  }
  Chunk& chunk = buffer_.chunk(code.chunk());
  if (chunk.state == Chunk::State::kTaken || chunk.is_moved || chunk.is_frozen) {
    return false;
  }
  std::memcpy(chunk.bytes.data() + chunk.rows[code.row()].offset, bytes.data(), bytes.size());
  return true;
}

void StoreCore::wait_for_room(Lock& lock, std::int64_t row_bytes) {
  while (!buffer_.has_room(row_bytes)) {
    buffer_.close();
    work_.notify_one();
    changed_.wait(lock);
    check_usable();
  }
}

/// The row lies at `code` from now on.
void StoreCore::point(StoredRows& shard, std::int64_t row, PlaceCode code) {
  PlaceCode old = shard.index.get(row);
  shard.held += old.is_nowhere() ? 1 : 0;
  if (old.is_buffered()) {
    old = buffer_.chunk(old.chunk()).rows[old.row()].place;
  }
  if (!old.is_nowhere()) {
    segments_.lose(old.segment(), shard.counted());
  }
  shard.index.set(row, code);
}

void StoreCore::drain() {
  Lock lock(mutex_);
  check_usable();
  buffer_.close();
  work_.notify_one();
  changed_.wait(lock, [this, all = buffer_.queued()] { return failure_ || appended_ >= all; });
  check_usable();
}

void PlaceLookup::let_files_go() {
  for (const std::uint32_t segment : segments) {
    files[segment].reset();
  }
  segments.clear();
}

void StoreCore::look_up(const StoredRows& shard, PlaceLookup& lookup) {
  const std::int64_t row_bytes = shard.row_bytes();
  lookup.found.assign(lookup.rows.size(), 1);
  lookup.wanted.clear();
  lookup.let_files_go();
  const Lock lock(mutex_);
  check_usable();
  counts_.rows_asked += static_cast<std::int64_t>(lookup.rows.size());
  lookup.files.resize(segments_.slots());
  for (std::size_t i = 0; i < lookup.rows.size(); ++i) {
    const std::int64_t row = lookup.rows[i];
    WEFT_CHECK(0 <= row && row < shard.shard().rows.size(), "row {}", row);
    const PlaceCode code = shard.index.get(row);
    if (code.is_nowhere()) {
      lookup.found[i] = 0;
    } else if (code.is_buffered()) {
      const Chunk& chunk = buffer_.chunk(code.chunk());
      std::memcpy(lookup.packed + static_cast<std::int64_t>(i) * row_bytes,
                  chunk.bytes.data() + chunk.rows[code.row()].offset, at(row_bytes));
      ++counts_.rows_buffered;
    } else {
      lookup.wanted.push_back({code, static_cast<std::int64_t>(i)});
      auto& file = lookup.files[code.segment()];
      if (file == nullptr) {
        file = segments_.get(code.segment()).file;
        lookup.segments.push_back(code.segment());
      }
    }
  }
  counts_.rows_read += static_cast<std::int64_t>(lookup.wanted.size());
}

void StoreCore::count_groups(std::int64_t groups, std::int64_t bytes) {
  const Lock lock(mutex_);
  counts_.groups_read += groups;
  counts_.bytes_read += bytes;
}

/// What has been written until now is frozen, so the request may wait for the disk.
void StoreCore::begin(const std::shared_ptr<SealRequest>& request) {
  check_usable();
  buffer_.freeze();
  request->after = buffer_.queued();
  request->seal.number = static_cast<std::uint64_t>(++counts_.seals);
  for (const std::uint32_t slot : segments_.in_order()) {
    StoreSegment& segment = segments_.get(slot);
    if (!segment.is_sealed() || segment.live_rows > 0) {
      ++segment.pins;
      request->pinned.push_back(slot);
    }
  }
  requests_.push_back(request);
  work_.notify_one();
}

void StoreCore::wait(Lock& lock, const SealRequest& request) {
  changed_.wait(lock, [&] { return failure_ || request.is_done; });
  if (!request.is_done) {
    check_usable();
  }
}

Seal StoreCore::seal() {
  const auto request = std::make_shared<SealRequest>();
  Lock lock(mutex_);
  begin(request);
  wait(lock, *request);
  return std::move(request->seal);
}

void StoreCore::retire(const Seal& seal) {
  {
    const Lock lock(mutex_);
    let_go(seal.number);
  }
  work_.notify_one();
}

void StoreCore::let_go(std::uint64_t seal) {
  const auto found = seals_.find(seal);
  WEFT_CHECK(found != seals_.end(), "seal {} has been retired", seal);
  for (const std::uint32_t slot : found->second) {
    --segments_.get(slot).pins;
  }
  seals_.erase(found);
}

bool StoreCore::is_new(const StoreSegment& segment) const {
  return segment.position.number > marked_;
}

/// A seal that is waited for later, and keeps cleaning out until then.
class StoreCore::StoreSeal final : public RowSeal {
 public:
  explicit StoreSeal(StoreCore& core) : core_(core) {
    const Lock lock(core_.mutex_);
    core_.check_usable();
    request_->stops_cleaning = true;
    ++core_.cleaning_stops_;
    has_moved_ = core_.is_moving_;
    for (const std::uint32_t slot : core_.segments_.in_order()) {
      const StoreSegment& segment = core_.segments_.get(slot);
      has_moved_ = has_moved_ || (!segment.position.is_fresh && core_.is_new(segment));
    }
  }

  ~StoreSeal() override {
    {
      const Lock lock(core_.mutex_);
      request_->is_given_up = true;
      if (std::exchange(request_->stops_cleaning, false)) {
        --core_.cleaning_stops_;
      }
      if (request_->is_done) {
        core_.let_go(request_->seal.number);
      }
    }
    core_.work_.notify_one();
  }

  StoreSeal(const StoreSeal&) = delete;
  StoreSeal& operator=(const StoreSeal&) = delete;

  [[nodiscard]] bool has_moved_rows() const override { return has_moved_; }

  void begin() override {
    const Lock lock(core_.mutex_);
    core_.begin(request_);
  }

  void mark() override {
    const Lock lock(core_.mutex_);
    request_->is_marked = true;
    if (request_->is_done) {
      core_.marked_ = request_->last_number;
    }
  }

  const std::vector<RowFile>& wait() override {
    if (files_.empty()) {
      Lock lock(core_.mutex_);
      core_.wait(lock, *request_);
      files_.assign(request_->seal.files.begin(), request_->seal.files.end());
    }
    return files_;
  }

 private:
  StoreCore& core_;
  const std::shared_ptr<SealRequest> request_ = std::make_shared<SealRequest>();
  bool has_moved_ = false;
  std::vector<RowFile> files_;
};

std::vector<RowFileStream> StoreCore::streams() const {
  const Lock lock(mutex_);
  std::vector<RowFileStream> streams;
  for (const auto& shard : shards_) {
    streams.push_back({shard->shard().key, shard->row_bytes()});
  }
  return streams;
}

std::int64_t StoreCore::new_bytes() const {
  const Lock lock(mutex_);
  std::int64_t bytes = buffer_.waiting_bytes();
  for (const std::uint32_t slot : segments_.in_order()) {
    const StoreSegment& segment = segments_.get(slot);
    if (is_new(segment)) {
      bytes += segment.is_sealed() ? segment.bytes : segment.row_bytes;
    }
  }
  return bytes;
}

std::unique_ptr<RowSeal> StoreCore::make_seal() {
  return std::make_unique<StoreSeal>(*this);
}

void StoreCore::for_each_row(const StoredRows& shard, const RowsVisitor& visit) {
  constexpr std::size_t kRowsListedAtOnce = 4096;
  const Seal sealed = seal();
  const auto retired = [this](const Seal* one) { retire(*one); };
  const std::unique_ptr<const Seal, decltype(retired)> guard(&sealed, retired);
  std::vector<std::uint32_t> slots;
  {
    const Lock lock(mutex_);
    slots = seals_.at(sealed.number);
  }
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (shard.number() >= sealed.files[i].live_rows.size() ||
        sealed.files[i].live_rows[shard.number()] == 0) {
      continue;
    }
    rowfile::SegmentReader(files_, sealed.files[i].path)
        .for_each_group([&](const rowfile::GroupIds& group) {
          if (group.stream != shard.stream()) {
            return;
          }
          Lock lock(mutex_);
          for (std::uint32_t k = 0; k < group.ids.size(); ++k) {
            const std::int64_t row =
                shard.shard().rows.index(static_cast<std::int64_t>(group.ids[k]));
            if (shard.index.get(row) == PlaceCode::in_segment(slots[i], {group.block, k})) {
              rows.push_back(row);
            }
          }
          lock.unlock();
          if (rows.size() >= kRowsListedAtOnce) {
            visit(rows);
            rows.clear();
          }
        });
  }
  if (!rows.empty()) {
    visit(rows);
  }
}

std::int64_t StoreCore::rows_held(const StoredRows& shard) const {
  const Lock lock(mutex_);
  return shard.held;
}

std::int64_t StoreCore::most_files() const {
  const Lock lock(mutex_);
  double bytes = 0;
  for (const auto& shard : shards_) {
    bytes += static_cast<double>(shard->shard().rows.size()) *
             static_cast<double>(shard->counted().bytes);
  }
  return most_segments(bytes, {options_.space_factor, options_.segment_bytes});
}

StoreCounts StoreCore::counts() const {
  const Lock lock(mutex_);
  StoreCounts counts = counts_;
  for (std::uint32_t slot = 0; slot < segments_.slots(); ++slot) {
    if (segments_.has(slot) && segments_.get(slot).is_sealed()) {
      const StoreSegment& segment = segments_.get(slot);
      ++counts.segments;
      counts.segment_bytes += segment.bytes;
      counts.live_bytes += segment.live_bytes;
    }
  }
  for (const auto& shard : shards_) {
    counts.rows_held += shard->held;
    counts.index_bytes += shard->index.bytes();
  }
  counts.buffer_bytes = buffer_.bytes();
  counts.read_bytes = read_memory_.bytes();
  return counts;
}

}  // namespace weft::storage
