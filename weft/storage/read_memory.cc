#include "weft/storage/read_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "weft/base/at.h"

namespace weft::storage {

ReadMemory::ReadMemory(io::BlockReads& reads, std::int64_t most_bytes)
    : reads_(reads), most_bytes_(most_bytes) {
  kept_.reserve(at(most_bytes / kPieceBytes + 1));
}

std::unique_ptr<ReadPiece> ReadMemory::take_if_room(std::int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (auto piece = take_kept(bytes)) {
      return piece;
    }
    const std::int64_t more = std::max(bytes, kPieceBytes);
    if (bytes_ + more > most_bytes_) {
      return nullptr;
    }
    bytes_ += more;
  }
  return make(bytes);
}

std::unique_ptr<ReadPiece> ReadMemory::take(std::int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (auto piece = take_kept(bytes)) {
      return piece;
    }
    bytes_ += std::max(bytes, kPieceBytes);
  }
  return make(bytes);
}

void ReadMemory::give_back(std::unique_ptr<ReadPiece> piece) {
  const std::lock_guard lock(mutex_);
  if (bytes_ > most_bytes_ || piece->bytes > kPieceBytes) {
    bytes_ -= piece->bytes;
    piece.reset();
  } else {
    kept_.push_back(std::move(piece));
  }
}

std::int64_t ReadMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

/// One that nobody has and that is large enough; else makes room for a larger one.
std::unique_ptr<ReadPiece> ReadMemory::take_kept(std::int64_t bytes) {
  if (kept_.empty()) {
    return nullptr;
  }
  if (bytes <= kPieceBytes) {
    auto piece = std::move(kept_.back());
    kept_.pop_back();
    return piece;
  }
  while (!kept_.empty() && bytes_ + bytes > most_bytes_) {
    bytes_ -= kept_.back()->bytes;
    kept_.pop_back();
  }
  return nullptr;
}

/// Whose bytes have been counted.
std::unique_ptr<ReadPiece> ReadMemory::make(std::int64_t bytes) {
  auto piece = std::make_unique<ReadPiece>();
  piece->bytes = std::max(bytes, kPieceBytes);
  piece->memory.reset(
      static_cast<std::byte*>(std::aligned_alloc(at(io::kBlockAlignment), at(piece->bytes))));
  if (piece->memory == nullptr) {
    const std::lock_guard lock(mutex_);
    bytes_ -= piece->bytes;
    throw std::bad_alloc();
  }
  piece->batch = reads_.make_batch();
  return piece;
}

}  // namespace weft::storage
