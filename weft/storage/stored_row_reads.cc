// Reads of rows of a SegmentStore: places are looked up, rows in the same group are read once, and
// many groups are in flight, in pieces of the store's memory for reads: while one piece is copied
// out of, the others are read into.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "weft/rowfile/block.h"
#include "weft/storage/read_memory.h"
#include "weft/storage/store_core.h"

namespace weft::storage {
namespace {

/// That one caller has in flight at most, of the store's; or one group.
constexpr std::int64_t kMostOwnBytes = kMostReadBytes / 2;

class StoredRowReads final : public RowReads {
 public:
  StoredRowReads(StoreCore& core, const StoredRows& shard)
      : core_(core),
        shard_(shard),
        row_bytes_(shard.row_bytes()),
        group_bytes_(rowfile::group_bytes(row_bytes_)),
        groups_of_piece_(std::max<std::int64_t>(ReadMemory::kPieceBytes / group_bytes_, 1)),
        piece_bytes_(groups_of_piece_ * group_bytes_) {}

  ~StoredRowReads() override { drop(); }

  void begin(std::span<const std::int64_t> rows, std::byte* packed) override {
    try {
      drop();
      lookup_.rows = rows;
      lookup_.packed = packed;
      core_.look_up(shard_, lookup_);
      std::sort(lookup_.wanted.begin(), lookup_.wanted.end(),
                [](const WantedRow& a, const WantedRow& b) { return a.code < b.code; });
      std::int64_t groups = 0;
      for (std::size_t i = 0; i < lookup_.wanted.size(); ++i) {
        groups += i == 0 || !lookup_.wanted[i].code.shares_group(lookup_.wanted[i - 1].code);
      }
      if (groups > 0) {
        core_.count_groups(groups, groups * group_bytes_);
        next_ = 0;
        begin_more();
      }
    } catch (const Error& error) {
      drop();
      shard_.rethrow(error);
    }
  }

  void wait(std::span<std::uint8_t> found) override {
    WEFT_CHECK(found.size() == lookup_.rows.size(), "{} of {} rows", found.size(),
               lookup_.rows.size());
    try {
      begin_more();
      while (first_piece_ < pieces_.size() || next_ < lookup_.wanted.size()) {
        if (first_piece_ == pieces_.size()) {
          begin(memory().take(piece_bytes_));
        }
        ReadPiece& piece = *pieces_[first_piece_];
        piece.batch->wait();
        copy_out(piece);
        std::unique_ptr<ReadPiece> free = std::move(pieces_[first_piece_++]);
        if (next_ < lookup_.wanted.size()) {
          begin(std::move(free));
        } else {
          memory().give_back(std::move(free));
        }
      }
    } catch (const Error& error) {
      drop();
      shard_.rethrow(error);
    }
    lookup_.let_files_go();
    std::copy(lookup_.found.begin(), lookup_.found.end(), found.begin());
  }

 private:
  [[nodiscard]] ReadMemory& memory() const { return core_.read_memory(); }

  /// Begins reads as long as there are rows, and memory for them.
  void begin_more() {
    const std::int64_t most = std::max<std::int64_t>(kMostOwnBytes / piece_bytes_, 1);
    while (next_ < lookup_.wanted.size() && std::cmp_less(pieces_.size() - first_piece_, most)) {
      std::unique_ptr<ReadPiece> piece = memory().take_if_room(piece_bytes_);
      if (piece == nullptr) {
        return;
      }
      begin(std::move(piece));
    }
  }

  /// Begins to read the groups of the next rows, of which there are some.
  void begin(std::unique_ptr<ReadPiece> taken) {
    ReadPiece& piece = *taken;
    pieces_.push_back(std::move(taken));
    piece.first = next_;
    piece.end = next_;
    requests_.clear();
    std::byte* data = piece.memory.get();
    for (; next_ < lookup_.wanted.size(); ++next_) {
      const PlaceCode code = lookup_.wanted[next_].code;
      if (next_ > piece.first && code.shares_group(lookup_.wanted[next_ - 1].code)) {
        continue;
      }
      if (std::cmp_equal(requests_.size(), groups_of_piece_)) {
        break;
      }
      requests_.push_back({.file = lookup_.files[code.segment()]->number(),
                           .offset = code.place().block * rowfile::kBlockBytes,
                           .bytes = group_bytes_,
                           .data = data});
      data += group_bytes_;
    }
    piece.end = next_;
    piece.batch->begin(requests_);
  }

  /// Checks each group once.
  void copy_out(ReadPiece& piece) {
    const std::byte* group = piece.memory.get() - group_bytes_;
    for (std::size_t i = piece.first; i < piece.end; ++i) {
      const WantedRow& wanted = lookup_.wanted[i];
      const rowfile::Place place = wanted.code.place();
      if (i == piece.first || !wanted.code.shares_group(lookup_.wanted[i - 1].code)) {
        group += group_bytes_;
        check({group, at(group_bytes_)}, wanted.code);
      }
      std::memcpy(lookup_.packed + wanted.index * row_bytes_,
                  group + rowfile::offset_in_group(place.row, row_bytes_), at(row_bytes_));
    }
    piece.first = piece.end;
  }

  void check(std::span<const std::byte> group, PlaceCode code) const {
    const std::int64_t block = code.place().block;
    const std::string fault = rowfile::find_group_fault(group, block, shard_.stream(), row_bytes_);
    if (!fault.empty()) {
      fail(ErrorCode::kIo,
           "'{}' is damaged in block {}, at offset {}: {}; what was written is not what is read: "
           "check the disk, and resume from a checkpoint",
           lookup_.files[code.segment()]->path(), block, block * rowfile::kBlockBytes, fault);
    }
  }

  /// Waits for what is in flight.
  void drop() {
    for (; first_piece_ < pieces_.size(); ++first_piece_) {
      std::unique_ptr<ReadPiece>& piece = pieces_[first_piece_];
      try {
        piece->batch->wait();
      } catch (const Error&) {
        // Who began these reads has been told of another error, or does not wait for them.
      }
      memory().give_back(std::move(piece));
    }
    pieces_.clear();
    first_piece_ = 0;
    next_ = 0;
    lookup_.wanted.clear();
    lookup_.let_files_go();
  }

  StoreCore& core_;
  const StoredRows& shard_;
  const std::int64_t row_bytes_;
  const std::int64_t group_bytes_;
  const std::int64_t groups_of_piece_;
  const std::int64_t piece_bytes_;
  PlaceLookup lookup_;
  std::vector<std::unique_ptr<ReadPiece>> pieces_;  ///< in the order of rows
  std::size_t first_piece_ = 0;                     ///< that is in flight
  std::size_t next_ = 0;  ///< of the sorted list, the first that is in no piece
  std::vector<io::BlockRead> requests_;
};

}  // namespace

std::unique_ptr<RowReads> make_stored_row_reads(StoreCore& core, const StoredRows& shard) {
  return std::make_unique<StoredRowReads>(core, shard);
}

}  // namespace weft::storage
