#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"

namespace weft::data {
namespace {

// A file's bytes, mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
      const std::string reason = std::strerror(errno);
      close_if_open(descriptor);
      fail(ErrorCode::kData, "cannot read weft file '{}': {}; check data.path", path, reason);
    }
    if (!S_ISREG(status.st_mode)) {
      close_if_open(descriptor);
      fail(ErrorCode::kData, "weft file '{}' is not a regular file; check data.path", path);
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    const std::string reason = data == MAP_FAILED ? std::strerror(errno) : "";
    close_if_open(descriptor);
    if (data == MAP_FAILED) {
      fail(ErrorCode::kData, "cannot map weft file '{}' ({} bytes): {}", path, size, reason);
    }
    bytes_ = {static_cast<const std::byte*>(data), size};
  }

  ~MappedFile() {
    if (!bytes_.empty()) {
      ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
  }

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static void close_if_open(int descriptor) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }

  std::span<const std::byte> bytes_;
};

// One file: its header and footer verified, its blocks found.
class WeftFile {
 public:
  struct Block {
    std::int64_t samples;
    const std::byte* columns;  // the footer's entries: offset, bytes, checksum
  };

  WeftFile(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {
    schema_ = layout::decode_header(bytes_, name_, header_bytes_);
    find_footer();
    read_footer();
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const Schema& schema() const { return schema_; }

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  [[nodiscard]] std::uint64_t fingerprint() const {
    const std::string base = std::filesystem::path(name_).filename().string();
    return hash_combine(hash_combine(hash_string(base), bytes_.size()), footer_checksum_);
  }

  // Column `column` (dense, then categorical, then labels) of a block, its checksum verified.
  [[nodiscard]] std::span<const std::byte> chunk(std::size_t block, std::size_t column) const {
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

  [[nodiscard]] std::string where(std::size_t block, std::size_t column) const {
    return fmt::format("{}: block {}, column '{}'", name_, block, column_name(column));
  }

 private:
  [[nodiscard]] const std::string& column_name(std::size_t column) const {
    if (column < schema_.dense.size()) {
      return schema_.dense[column];
    }
    column -= schema_.dense.size();
    return column < schema_.categorical.size()
               ? schema_.categorical[column].name
               : schema_.labels[column - schema_.categorical.size()];
  }

  template <typename... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kData, "{}: {}; the file is cut or damaged, copy or write it again", name_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void find_footer() {
    if (bytes_.size() < header_bytes_ + layout::kTrailerBytes) {
      damaged("{} bytes, too few for its end", bytes_.size());
    }
    const std::byte* trailer = bytes_.data() + bytes_.size() - layout::kTrailerBytes;
    if (std::memcmp(trailer + 24, layout::kTrailerMagic, layout::kMagicBytes) != 0) {
      damaged("its last bytes are not {}", layout::kTrailerMagic);
    }
    const auto offset = layout::load<std::uint64_t>(trailer);
    const auto length = layout::load<std::uint64_t>(trailer + 8);
    const std::uint64_t end = bytes_.size() - layout::kTrailerBytes;
    if (offset < header_bytes_ || offset > end || length != end - offset) {
      damaged("a footer of {} bytes at {} in a file of {}", length, offset, bytes_.size());
    }
    footer_ = bytes_.subspan(offset, length);
    footer_checksum_ = layout::load<std::uint64_t>(trailer + 16);
    if (hash_bytes(footer_) != footer_checksum_) {
      damaged("the footer's checksum does not match");
    }
  }

  void read_footer() {
    if (footer_.size() < layout::kFooterFixed) {
      damaged("a footer of {} bytes", footer_.size());
    }
    const auto samples = layout::load<std::uint64_t>(footer_.data());
    const auto blocks = layout::load<std::uint32_t>(footer_.data() + 8);
    const auto pairs = layout::load<std::uint32_t>(footer_.data() + 12);
    const std::size_t columns = layout::columns(schema_);
    const std::size_t stride = layout::kBlockFixed + columns * layout::kColumnEntry;
    std::span<const std::byte> rest = footer_.subspan(layout::kFooterFixed);
    if (blocks > rest.size() / stride) {
      damaged("a footer of {} bytes for {} blocks", footer_.size(), blocks);
    }
    std::uint64_t found = 0;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      add_block(rest.data() + block * stride);
      found += static_cast<std::uint64_t>(blocks_.back().samples);
    }
    if (found != samples) {
      damaged("{} samples in its blocks, {} in its footer", found, samples);
    }
    rest = rest.subspan(blocks * stride);
    for (std::uint32_t i = 0; i < pairs; ++i) {
      rest = read_pair(rest);
    }
  }

  void add_block(const std::byte* entry) {
    const auto samples = layout::load<std::uint64_t>(entry);
    if (samples == 0 || samples > static_cast<std::uint64_t>(layout::kMaxBlockSamples)) {
      damaged("block {} of {} samples", blocks_.size(), samples);
    }
    blocks_.push_back({static_cast<std::int64_t>(samples), entry + layout::kBlockFixed});
    const auto footer_at = static_cast<std::uint64_t>(footer_.data() - bytes_.data());
    const std::size_t columns = layout::columns(schema_);
    for (std::size_t column = 0; column < columns; ++column) {
      const std::byte* at = blocks_.back().columns + column * layout::kColumnEntry;
      const auto offset = layout::load<std::uint64_t>(at);
      const auto length = layout::load<std::uint64_t>(at + 8);
      const bool categorical = column >= schema_.dense.size() &&
                               column < schema_.dense.size() + schema_.categorical.size();
      const bool inside =
          offset >= header_bytes_ && offset <= footer_at && length <= footer_at - offset;
      if (!inside || (!categorical && length != layout::padded(samples * sizeof(float)))) {
        damaged("block {}, column '{}': {} bytes at {}", blocks_.size() - 1, column_name(column),
                length, offset);
      }
    }
  }

  std::span<const std::byte> read_pair(std::span<const std::byte> rest) {
    if (rest.size() < 8) {
      damaged("metadata that does not fit in the footer");
    }
    const std::uint64_t key = layout::load<std::uint32_t>(rest.data());
    const std::uint64_t value = layout::load<std::uint32_t>(rest.data() + 4);
    if (key + value > rest.size() - 8) {
      damaged("metadata that does not fit in the footer");
    }
    const auto* text = reinterpret_cast<const char*>(rest.data() + 8);
    metadata_[std::string(text, key)] = std::string(text + key, value);
    return rest.subspan(8 + key + value);
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  Schema schema_;
  std::size_t header_bytes_ = 0;
  std::span<const std::byte> footer_;
  std::uint64_t footer_checksum_ = 0;
  std::vector<Block> blocks_;
  std::map<std::string, std::string> metadata_;
};

// Says what differs first, in the words of a message.
std::string difference(const Schema& a, const Schema& b) {
  const auto differs = [](const auto& x, const auto& y, const auto& name) {
    const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    return fmt::format("{} instead of {}", at.second == y.end() ? "none" : name(*at.second),
                       at.first == x.end() ? "none" : name(*at.first));
  };
  const auto plain = [](const std::string& name) { return "'" + name + "'"; };
  const auto full = [](const Schema::Categorical& column) {
    return fmt::format("'{}'{}{}", column.name, column.multi_valued ? " (multi-valued)" : "",
                       column.weighted ? " (weighted)" : "");
  };
  if (a.dense != b.dense) {
    return "dense column " + differs(a.dense, b.dense, plain);
  }
  if (a.categorical != b.categorical) {
    return "categorical column " + differs(a.categorical, b.categorical, full);
  }
  return "label " + differs(a.labels, b.labels, plain);
}

class WeftSource final : public Source {
 public:
  explicit WeftSource(const std::vector<std::string>& paths) {
    if (paths.empty()) {
      fail(ErrorCode::kData, "no weft file to read; set data.path");
    }
    for (const std::string& path : paths) {
      maps_.push_back(std::make_unique<MappedFile>(path));
      add(maps_.back()->bytes(), path);
    }
    selection_ = ColumnSelection::all(schema());
  }

  WeftSource(std::span<const std::byte> bytes, const std::string& name) {
    add(bytes, name);
    selection_ = ColumnSelection::all(schema());
  }

  [[nodiscard]] const Schema& schema() const override { return files_.front().schema(); }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("weft {} ({} file{}, {} samples)", files_.front().name(), files_.size(),
                       files_.size() == 1 ? "" : "s", size_);
  }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::clamp<std::int64_t>(size_ - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    out.reset(schema());
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
    locate(sample_ids);
    const std::size_t dense = schema().dense.size();
    const std::size_t categorical = schema().categorical.size();
    for (std::size_t i = 0; i < dense; ++i) {
      if (selection_.dense[i] != 0) {
        read_floats(i, out.dense[i]);
      }
    }
    for (std::size_t i = 0; i < categorical; ++i) {
      if (selection_.categorical[i] != 0) {
        read_bags(dense + i, out.categorical[i]);
      }
    }
    for (std::size_t i = 0; i < schema().labels.size(); ++i) {
      if (selection_.labels[i] != 0) {
        read_floats(dense + categorical + i, out.labels[i]);
      }
    }
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema(), columns);
  }

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    std::uint64_t hash = 0;
    for (const WeftFile& file : files_) {
      hash = hash_combine(hash, file.fingerprint());
    }
    return hash;
  }

  [[nodiscard]] std::optional<double> bayes_ne() const override {
    const auto& metadata = files_.front().metadata();
    const auto found = metadata.find("bayes_ne");
    if (files_.size() > 1 || found == metadata.end()) {
      return std::nullopt;
    }
    double value = 0.0;
    const char* end = found->second.data() + found->second.size();
    const auto [at, error] = std::from_chars(found->second.data(), end, value);
    return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
  }

 private:
  // A column of a block that has been verified; `floats` for dense and label columns.
  struct Column {
    const std::byte* floats = nullptr;
    layout::BagsView bags;
    bool ready = false;
  };

  struct Block {
    std::int64_t first;  // sample id in the source
    std::uint32_t file;
    std::uint32_t index;                // in the file
    std::unique_ptr<Column[]> columns;  // made when the block is first touched
  };

  struct Place {
    std::uint32_t block;
    std::uint32_t sample;  // in the block
  };

  void add(std::span<const std::byte> bytes, const std::string& name) {
    files_.emplace_back(bytes, name);
    const WeftFile& file = files_.back();
    if (file.schema() != schema()) {
      fail(ErrorCode::kData,
           "weft files '{}' and '{}' have different columns: {}; convert both from the same format",
           files_.front().name(), name, difference(schema(), file.schema()));
    }
    for (std::size_t i = 0; i < file.blocks().size(); ++i) {
      blocks_.push_back({size_, static_cast<std::uint32_t>(files_.size() - 1),
                         static_cast<std::uint32_t>(i), nullptr});
      size_ += file.blocks()[i].samples;
    }
  }

  void locate(std::span<const std::int64_t> sample_ids) {
    places_.resize(sample_ids.size());
    std::size_t block = 0;
    for (std::size_t i = 0; i < sample_ids.size(); ++i) {
      const std::int64_t id = sample_ids[i];
      WEFT_CHECK(id >= 0 && id < size_, "sample {} of {}", id, size_);
      const std::int64_t end = block + 1 < blocks_.size() ? blocks_[block + 1].first : size_;
      if (id < blocks_[block].first || id >= end) {
        const auto next =
            std::upper_bound(blocks_.begin(), blocks_.end(), id,
                             [](std::int64_t value, const Block& b) { return value < b.first; });
        block = static_cast<std::size_t>(next - blocks_.begin()) - 1;
      }
      places_[i] = {static_cast<std::uint32_t>(block),
                    static_cast<std::uint32_t>(id - blocks_[block].first)};
    }
  }

  const Column& column(std::uint32_t block_index, std::size_t index) {
    Block& block = blocks_[block_index];
    if (!block.columns) {
      block.columns = std::make_unique<Column[]>(layout::columns(schema()));
    }
    Column& column = block.columns[index];
    if (!column.ready) {
      const WeftFile& file = files_[block.file];
      const std::span<const std::byte> chunk = file.chunk(block.index, index);
      const std::size_t dense = schema().dense.size();
      if (index >= dense && index < dense + schema().categorical.size()) {
        column.bags = layout::decode_bags(chunk, file.blocks()[block.index].samples,
                                          schema().categorical[index - dense],
                                          file.where(block.index, index));
      } else {
        column.floats = chunk.data();
      }
      column.ready = true;
    }
    return column;
  }

  void read_floats(std::size_t index, std::vector<float>& out) {
    out.resize(places_.size());
    for (std::size_t i = 0; i < places_.size();) {
      const std::uint32_t block = places_[i].block;
      const std::byte* values = column(block, index).floats;
      for (; i < places_.size() && places_[i].block == block; ++i) {
        out[i] = layout::load<float>(values + sizeof(float) * places_[i].sample);
      }
    }
  }

  void read_bags(std::size_t index, RawBlock::Bags& out) {
    out.offsets.reserve(places_.size() + 1);
    out.offsets.push_back(0);
    for (std::size_t i = 0; i < places_.size();) {
      const std::uint32_t block = places_[i].block;
      const layout::BagsView& bags = column(block, index).bags;
      for (; i < places_.size() && places_[i].block == block; ++i) {
        const std::uint32_t end = bags.offset(places_[i].sample + 1);
        for (std::uint32_t j = bags.offset(places_[i].sample); j < end; ++j) {
          out.ids.push_back(bags.id(j));
          if (bags.weights != nullptr) {
            out.weights.push_back(layout::load<float>(bags.weights + sizeof(float) * j));
          }
        }
        out.offsets.push_back(static_cast<std::int64_t>(out.ids.size()));
      }
    }
  }

  std::vector<std::unique_ptr<MappedFile>> maps_;
  std::vector<WeftFile> files_;
  std::vector<Block> blocks_;
  std::int64_t size_ = 0;
  ColumnSelection selection_;
  std::vector<Place> places_;  // of the samples being read
};

}  // namespace

std::unique_ptr<Source> open_weft(const std::vector<std::string>& files) {
  return std::make_unique<WeftSource>(files);
}

std::unique_ptr<Source> open_weft_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return std::make_unique<WeftSource>(bytes, name);
}

}  // namespace weft::data
