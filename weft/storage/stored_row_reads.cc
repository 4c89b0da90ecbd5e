// Reads of rows of a SegmentStore: places are looked up, rows in the same group are read once, and
// many groups are in flight. Memory for groups is in two halves: while one is copied out of, the
// other is read into.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "weft/rowfile/block.h"
#include "weft/storage/store_core.h"

namespace weft::storage {
namespace {

/// Of each half, or one group.
constexpr std::int64_t kMostHalfBytes = std::int64_t{16} << 20;

struct FreeBlocks {
  void operator()(std::byte* memory) const { std::free(memory); }
};

/// Memory at whole blocks.
class Blocks {
 public:
  void resize_for(std::int64_t bytes) {
    if (bytes <= bytes_) {
      return;
    }
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(at(io::kBlockAlignment), at(bytes))));
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
    bytes_ = bytes;
  }

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte, FreeBlocks> memory_;
  std::int64_t bytes_ = 0;
};

class StoredRowReads final : public RowReads {
 public:
  StoredRowReads(StoreCore& core, const StoredRows& shard)
      : core_(core),
        shard_(shard),
        row_bytes_(shard.row_bytes()),
        group_bytes_(rowfile::group_bytes(row_bytes_)) {
    for (Half& half : halves_) {
      half.batch = core_.reads().make_batch();
    }
  }

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
        groups_of_half_ =
            std::min(std::max<std::int64_t>(kMostHalfBytes / group_bytes_, 1), groups);
        next_ = 0;
        for (Half& half : halves_) {
          begin(half);
        }
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
      for (std::size_t turn = 0; halves_[turn].first < halves_[turn].end; turn = 1 - turn) {
        Half& half = halves_[turn];
        half.batch->wait();
        copy_out(half);
        begin(half);
      }
    } catch (const Error& error) {
      drop();
      shard_.rethrow(error);
    }
    lookup_.let_files_go();
    std::copy(lookup_.found.begin(), lookup_.found.end(), found.begin());
  }

 private:
  /// Rows of the sorted list whose groups are in its memory, or on their way there.
  struct Half {
    Blocks memory;
    std::unique_ptr<io::ReadBatch> batch;
    std::size_t first = 0;
    std::size_t end = 0;
  };

  /// Begins to read the groups of the next rows, if there are any.
  void begin(Half& half) {
    half.first = next_;
    half.end = next_;
    if (next_ == lookup_.wanted.size()) {
      return;
    }
    half.memory.resize_for(groups_of_half_ * group_bytes_);
    requests_.clear();
    std::byte* data = half.memory.data();
    for (; next_ < lookup_.wanted.size(); ++next_) {
      const PlaceCode code = lookup_.wanted[next_].code;
      if (next_ > half.first && code.shares_group(lookup_.wanted[next_ - 1].code)) {
        continue;
      }
      if (std::cmp_equal(requests_.size(), groups_of_half_)) {
        break;
      }
      requests_.push_back({.file = lookup_.files[code.segment()]->number(),
                           .offset = code.place().block * rowfile::kBlockBytes,
                           .bytes = group_bytes_,
                           .data = data});
      data += group_bytes_;
    }
    half.end = next_;
    half.batch->begin(requests_);
  }

  /// Checks each group once.
  void copy_out(Half& half) {
    const std::byte* group = half.memory.data() - group_bytes_;
    for (std::size_t i = half.first; i < half.end; ++i) {
      const WantedRow& wanted = lookup_.wanted[i];
      const rowfile::Place place = wanted.code.place();
      if (i == half.first || !wanted.code.shares_group(lookup_.wanted[i - 1].code)) {
        group += group_bytes_;
        check({group, at(group_bytes_)}, wanted.code);
      }
      std::memcpy(lookup_.packed + wanted.index * row_bytes_,
                  group + rowfile::offset_in_group(place.row, row_bytes_), at(row_bytes_));
    }
    half.first = half.end;
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
    for (Half& half : halves_) {
      try {
        half.batch->wait();
      } catch (const Error&) {
        // Who began these reads has been told of another error, or does not wait for them.
      }
      half.first = half.end = 0;
    }
    lookup_.let_files_go();
  }

  StoreCore& core_;
  const StoredRows& shard_;
  const std::int64_t row_bytes_;
  const std::int64_t group_bytes_;
  PlaceLookup lookup_;
  std::array<Half, 2> halves_;
  std::int64_t groups_of_half_ = 0;
  std::size_t next_ = 0;  ///< of the sorted list, the first that is not in a half
  std::vector<io::BlockRead> requests_;
};

}  // namespace

std::unique_ptr<RowReads> make_stored_row_reads(StoreCore& core, const StoredRows& shard) {
  return std::make_unique<StoredRowReads>(core, shard);
}

}  // namespace weft::storage
