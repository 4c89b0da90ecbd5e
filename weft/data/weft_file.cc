#include "weft/data/weft_file.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/weft_layout.h"

namespace weft::data {
namespace {

template <typename... Args>
[[noreturn]] void damaged(const std::string& name,
                          fmt::format_string<Args...> format,
                          Args&&... args) {
  fail(ErrorCode::kData, "{}: {}; the file is cut or damaged, copy or write it again", name,
       fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

WeftFile::WeftFile(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  schema_ = layout::decode_header(bytes_, name_, header_bytes_);
  find_footer();
  read_footer();
}

FileContent WeftFile::content() const {
  return {std::filesystem::path(name_).filename().string(),
          static_cast<std::int64_t>(bytes_.size()), footer_checksum_};
}

std::span<const std::byte> WeftFile::chunk(std::size_t block, std::size_t column) const {
  const std::byte* entry = blocks_[block].columns + column * layout::kColumnEntry;
  const auto offset = layout::load<std::uint64_t>(entry);
  const auto length = layout::load<std::uint64_t>(entry + 8);
  const std::span<const std::byte> bytes = bytes_.subspan(offset, length);
  if (hash_bytes(bytes) != layout::load<std::uint64_t>(entry + 16)) {
    fail(ErrorCode::kData,
         "{}: the checksum does not match; the file is damaged, copy or write it again",
         where(block, column));
  }
  return bytes;
}

std::string WeftFile::where(std::size_t block, std::size_t column) const {
  return fmt::format("{}: block {}, column '{}'", name_, block, column_name(column));
}

const std::string& WeftFile::column_name(std::size_t column) const {
  if (column < schema_.dense.size()) {
    return schema_.dense[column];
  }
  column -= schema_.dense.size();
  return column < schema_.categorical.size() ? schema_.categorical[column].name
                                             : schema_.labels[column - schema_.categorical.size()];
}

void WeftFile::find_footer() {
  if (bytes_.size() < header_bytes_ + layout::kTrailerBytes) {
    damaged(name_, "{} bytes, too few for its end", bytes_.size());
  }
  const std::byte* trailer = bytes_.data() + bytes_.size() - layout::kTrailerBytes;
  if (std::memcmp(trailer + 24, layout::kTrailerMagic, layout::kMagicBytes) != 0) {
    damaged(name_, "its last bytes are not {}", layout::kTrailerMagic);
  }
  const auto offset = layout::load<std::uint64_t>(trailer);
  const auto length = layout::load<std::uint64_t>(trailer + 8);
  const std::uint64_t end = bytes_.size() - layout::kTrailerBytes;
  if (offset < header_bytes_ || offset > end || length != end - offset) {
    damaged(name_, "a footer of {} bytes at {} in a file of {}", length, offset, bytes_.size());
  }
  footer_at_ = offset;
  const std::span<const std::byte> mapped = bytes_.subspan(offset, length);
  footer_.assign(mapped.begin(), mapped.end());
  footer_checksum_ = layout::load<std::uint64_t>(trailer + 16);
  if (hash_bytes(footer_) != footer_checksum_) {
    damaged(name_, "the footer's checksum does not match");
  }
}

void WeftFile::read_footer() {
  if (footer_.size() < layout::kFooterFixed) {
    damaged(name_, "a footer of {} bytes", footer_.size());
  }
  const auto samples = layout::load<std::uint64_t>(footer_.data());
  const auto blocks = layout::load<std::uint32_t>(footer_.data() + 8);
  const auto pairs = layout::load<std::uint32_t>(footer_.data() + 12);
  const std::size_t columns = layout::columns(schema_);
  const std::size_t stride = layout::kBlockFixed + columns * layout::kColumnEntry;
  auto rest = std::span<const std::byte>(footer_).subspan(layout::kFooterFixed);
  if (blocks > rest.size() / stride) {
    damaged(name_, "a footer of {} bytes for {} blocks", footer_.size(), blocks);
  }
  std::uint64_t found = 0;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    add_block(rest.data() + block * stride);
    found += static_cast<std::uint64_t>(blocks_.back().samples);
  }
  if (found != samples) {
    damaged(name_, "{} samples in its blocks, {} in its footer", found, samples);
  }
  rest = rest.subspan(blocks * stride);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    rest = read_pair(rest);
  }
}

void WeftFile::add_block(const std::byte* entry) {
  const auto samples = layout::load<std::uint64_t>(entry);
  if (samples == 0 || samples > static_cast<std::uint64_t>(layout::kMaxBlockSamples)) {
    damaged(name_, "block {} of {} samples", blocks_.size(), samples);
  }
  blocks_.push_back({static_cast<std::int64_t>(samples), entry + layout::kBlockFixed});
  const std::size_t columns = layout::columns(schema_);
  for (std::size_t column = 0; column < columns; ++column) {
    const std::byte* at = blocks_.back().columns + column * layout::kColumnEntry;
    const auto offset = layout::load<std::uint64_t>(at);
    const auto length = layout::load<std::uint64_t>(at + 8);
    const bool categorical = column >= schema_.dense.size() &&
                             column < schema_.dense.size() + schema_.categorical.size();
    const bool inside =
        offset >= header_bytes_ && offset <= footer_at_ && length <= footer_at_ - offset;
    if (!inside || (!categorical && length != layout::padded(samples * sizeof(float)))) {
      damaged(name_, "block {}, column '{}': {} bytes at {}", blocks_.size() - 1,
              column_name(column), length, offset);
    }
  }
}

std::span<const std::byte> WeftFile::read_pair(std::span<const std::byte> rest) {
  if (rest.size() < 8) {
    damaged(name_, "metadata that does not fit in the footer");
  }
  const std::uint64_t key = layout::load<std::uint32_t>(rest.data());
  const std::uint64_t value = layout::load<std::uint32_t>(rest.data() + 4);
  if (key + value > rest.size() - 8) {
    damaged(name_, "metadata that does not fit in the footer");
  }
  const auto* text = reinterpret_cast<const char*>(rest.data() + 8);
  metadata_[std::string(text, key)] = std::string(text + key, value);
  return rest.subspan(8 + key + value);
}

}  // namespace weft::data
