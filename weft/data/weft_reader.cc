#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <type_traits>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/data/grow.h"
#include "weft/data/mapped_file.h"
#include "weft/data/weft_file.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"

namespace weft::data {
namespace {

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
      read_checked([&] { add(maps_.back()->bytes(), path); });
    }
    index_blocks();
    selection_ = ColumnSelection::all(schema());
  }

  WeftSource(std::span<const std::byte> bytes, const std::string& name) {
    add(bytes, name);
    index_blocks();
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

  void begin_epoch() override {
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      switch (maps_[i]->find_change()) {
        case MappedFile::Change::kNone:
          break;
        case MappedFile::Change::kWritten:
          log_warning(
              "weft file '{}' was written to while it is in use; its blocks are verified anew",
              files_[i].name());
          std::fill(columns_.begin(), columns_.end(), Column{});
          break;
        case MappedFile::Change::kReplaced:
          if (!replaced_) {
            log_warning(
                "weft file '{}' was replaced or removed; this job goes on with the one it opened",
                files_[i].name());
          }
          replaced_ = true;
          break;
      }
    }
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    read_checked([&] { read_samples(sample_ids, out); });
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema(), columns);
  }

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    return fingerprint_of(content(std::numeric_limits<std::int64_t>::max()));
  }

  [[nodiscard]] std::vector<FileContent> content(std::int64_t most) const override {
    std::vector<FileContent> content;
    for (std::size_t i = 0; i < files_.size() && static_cast<std::int64_t>(i) < most; ++i) {
      content.push_back(files_[i].content());
    }
    return content;
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
  // Calls `read`. Where pages of a file were gone meanwhile, what it made or threw is of zeros, and
  // the error names the file.
  template <typename Read>
  void read_checked(const Read& read) {
    try {
      read();
    } catch (const Error&) {
      check_files();
      throw;
    }
    check_files();
  }

  void check_files() {
    const std::uint64_t lost_pages = MappedFile::lost_pages();
    if (lost_pages != lost_pages_) {
      for (const auto& map : maps_) {
        map->check();
      }
      lost_pages_ = lost_pages;
    }
  }

  void read_samples(std::span<const std::int64_t> sample_ids, RawBlock& out) {
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
    locate(sample_ids);
    const std::size_t dense = schema().dense.size();
    const std::size_t categorical = schema().categorical.size();
    // What is there is written over, not cleared first.
    out.dense.resize(dense);
    out.categorical.resize(categorical);
    out.labels.resize(schema().labels.size());
    for (std::size_t i = 0; i < dense; ++i) {
      read_floats(i, selection_.dense[i], out.dense[i]);
    }
    for (std::size_t i = 0; i < categorical; ++i) {
      read_bags(i, selection_.categorical[i], out.categorical[i]);
    }
    for (std::size_t i = 0; i < schema().labels.size(); ++i) {
      read_floats(dense + categorical + i, selection_.labels[i], out.labels[i]);
    }
  }

  // A column of a block, once it has been verified. Runs of one form are read by one loop.
  struct Column {
    static constexpr std::uint32_t kUnseen = 0;
    static constexpr std::uint32_t kFloats = 1;

    const std::byte* values = nullptr;  // floats or ids
    const std::byte* offsets = nullptr;
    const std::byte* weights = nullptr;
    std::uint32_t form = kUnseen;  // of bags: widths of ids and offsets
    std::uint32_t count = 0;       // of bags: ids
  };

  static constexpr std::uint32_t bags_form(std::uint32_t id_bytes, std::uint32_t offset_bytes) {
    return id_bytes << 8 | offset_bytes << 4;
  }

  struct Block {
    std::int64_t first;  // sample id in the source
    std::uint32_t file;
    std::uint32_t index;  // in the file
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
      blocks_.push_back(
          {size_, static_cast<std::uint32_t>(files_.size() - 1), static_cast<std::uint32_t>(i)});
      size_ += file.blocks()[i].samples;
    }
  }

  // After the last file.
  void index_blocks() {
    columns_.resize(layout::columns(schema()) * blocks_.size());
    // Granules of about half a block, so that a block is found in a step or two.
    const std::int64_t mean =
        blocks_.empty() ? 1 : size_ / static_cast<std::int64_t>(blocks_.size());
    granule_bits_ =
        std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(mean))) - 2);
    const std::int64_t granule = std::int64_t{1} << granule_bits_;
    std::uint32_t block = 0;
    for (std::int64_t first = 0; first < size_; first += granule) {
      while (end_of(block) <= first) {
        ++block;
      }
      granules_.push_back(block);
    }
    granules_.push_back(blocks_.empty() ? 0 : static_cast<std::uint32_t>(blocks_.size() - 1));
  }

  [[nodiscard]] std::int64_t end_of(std::size_t block) const {
    return block + 1 < blocks_.size() ? blocks_[block + 1].first : size_;
  }

  // The block of a sample: that of its granule's beginning, that of the next one's, or between.
  [[nodiscard]] std::size_t block_of(std::int64_t id) const {
    const auto granule = static_cast<std::size_t>(id >> granule_bits_);
    std::size_t low = granules_[granule];
    std::size_t high = granules_[granule + 1];
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (end_of(middle) <= id) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  void locate(std::span<const std::int64_t> sample_ids) {
    places_.resize(sample_ids.size());
    for (std::size_t i = 0; i < sample_ids.size(); ++i) {
      const std::int64_t id = sample_ids[i];
      WEFT_CHECK(id >= 0 && id < size_, "sample {} of {}", id, size_);
      const std::size_t block = block_of(id);
      places_[i] = {static_cast<std::uint32_t>(block),
                    static_cast<std::uint32_t>(id - blocks_[block].first)};
    }
  }

  // The column in the block of places_[i], verified if this is the first time.
  const Column& column_at(std::size_t index, std::size_t i) {
    Column& column = columns_[index * blocks_.size() + places_[i].block];
    if (column.form == Column::kUnseen) {
      verify(index, blocks_[places_[i].block], column);
    }
    return column;
  }

  void verify(std::size_t index, const Block& block, Column& column) const {
    const WeftFile& file = files_[block.file];
    const std::span<const std::byte> chunk = file.chunk(block.index, index);
    const std::size_t dense = schema().dense.size();
    if (index < dense || index >= dense + schema().categorical.size()) {
      column.values = chunk.data();
      column.form = Column::kFloats;
      return;
    }
    const layout::BagsView bags =
        layout::decode_bags(chunk, file.blocks()[block.index].samples,
                            schema().categorical[index - dense], file.where(block.index, index));
    column.values = bags.ids;
    column.offsets = bags.offsets;
    column.weights = bags.weights;
    column.count = bags.count;
    column.form = bags_form(bags.id_bytes, bags.offset_bytes);
  }

  void read_floats(std::size_t index, char selected, std::vector<float>& out) {
    out.resize(selected != 0 ? places_.size() : 0);
    const Column* const columns = columns_.data() + index * blocks_.size();
    for (std::size_t i = 0; i < out.size();) {
      column_at(index, i);
      for (; i < out.size() && columns[places_[i].block].form == Column::kFloats; ++i) {
        out[i] = layout::load<float>(columns[places_[i].block].values +
                                     sizeof(float) * places_[i].sample);
      }
    }
  }

  void read_bags(std::size_t index, char selected, RawBlock::Bags& out) {
    out.weights.clear();
    if (selected == 0) {
      out.offsets.clear();
      out.ids.clear();
      return;
    }
    out.offsets.resize(places_.size() + 1);
    out.offsets[0] = 0;
    const std::size_t column = schema().dense.size() + index;
    for (std::size_t i = 0; i < places_.size();) {
      const std::uint32_t form = column_at(column, i).form;
      switch (form >> 8) {
        case 1:
          i = read_run<std::uint8_t>(column, form & 0xf0, i, out);
          break;
        case 2:
          i = read_run<std::uint16_t>(column, form & 0xf0, i, out);
          break;
        case 4:
          i = read_run<std::uint32_t>(column, form & 0xf0, i, out);
          break;
        default:
          i = read_run<std::int64_t>(column, form & 0xf0, i, out);
      }
    }
    out.ids.resize(static_cast<std::size_t>(out.offsets.back()));
  }

  // Reads the bags of places_[i] and of those after it that are stored alike; returns the next.
  template <typename Id>
  std::size_t read_run(std::size_t column,
                       std::uint32_t offset_form,
                       std::size_t i,
                       RawBlock::Bags& out) {
    switch (offset_form) {
      case bags_form(0, 0):
        return read_run_of<Id, NoOffsets>(column, i, out);
      case bags_form(0, 2):
        return read_run_of<Id, std::uint16_t>(column, i, out);
      default:
        return read_run_of<Id, std::uint32_t>(column, i, out);
    }
  }

  template <typename Id, typename Offset>
  std::size_t read_run_of(std::size_t column, std::size_t i, RawBlock::Bags& out) {
    const Schema::Categorical& what = schema().categorical[column - schema().dense.size()];
    return what.multi_valued || what.weighted ? read_several<Id, Offset>(column, i, out)
                                              : read_single<Id, Offset>(column, i, out);
  }

  struct NoOffsets {};

  // offsets[sample] of a column with offsets of that type, at most its number of ids: a file may
  // have changed since the column was verified, and nothing beyond its bounds may be touched then.
  template <typename Offset>
  static std::size_t offset(const Column& column, std::size_t sample) {
    if constexpr (std::is_same_v<Offset, NoOffsets>) {
      return sample;
    } else {
      return std::min<std::size_t>(layout::load<Offset>(column.offsets + sizeof(Offset) * sample),
                                   column.count);
    }
  }

  // The first of the `length` ids of a sample.
  template <typename Offset>
  static std::size_t first_of(const Column& column, std::size_t sample, std::size_t length) {
    return std::min(offset<Offset>(column, sample), column.count - length);
  }

  // Of columns with at most one id per sample. An id is read, and written, before it is known to be
  // there: after the last one is the file's trailer.
  template <typename Id, typename Offset>
  std::size_t read_single(std::size_t index, std::size_t i, RawBlock::Bags& out) {
    const Column* const columns = columns_.data() + index * blocks_.size();
    const std::uint32_t form = columns[places_[i].block].form;
    const std::size_t end = places_.size();
    auto count = static_cast<std::size_t>(out.offsets[i]);
    out.ids.resize(end + 1);
    std::int64_t* const ids = out.ids.data();
    std::int64_t* const offsets = out.offsets.data() + 1;
    for (; i < end && columns[places_[i].block].form == form; ++i) {
      const Column& column = columns[places_[i].block];
      const std::size_t at = offset<Offset>(column, places_[i].sample);
      ids[count] = static_cast<std::int64_t>(layout::load<Id>(column.values + sizeof(Id) * at));
      count += offset<Offset>(column, places_[i].sample + 1) != at ? 1 : 0;
      offsets[i] = static_cast<std::int64_t>(count);
    }
    return i;
  }

  template <typename Id, typename Offset>
  std::size_t read_several(std::size_t index, std::size_t i, RawBlock::Bags& out) {
    const Column* const columns = columns_.data() + index * blocks_.size();
    const std::uint32_t form = columns[places_[i].block].form;
    const std::size_t begin = i;
    auto count = static_cast<std::size_t>(out.offsets[i]);
    for (; i < places_.size() && columns[places_[i].block].form == form; ++i) {
      const Column& column = columns[places_[i].block];
      const std::size_t first = offset<Offset>(column, places_[i].sample);
      count += std::max(offset<Offset>(column, places_[i].sample + 1), first) - first;
      out.offsets[i + 1] = static_cast<std::int64_t>(count);
    }
    resize_with_room(out.ids, count);
    for (std::size_t j = begin; j < i; ++j) {
      const Column& column = columns[places_[j].block];
      const std::int64_t length = out.offsets[j + 1] - out.offsets[j];
      const std::byte* from =
          column.values + sizeof(Id) * first_of<Offset>(column, places_[j].sample,
                                                        static_cast<std::size_t>(length));
      std::int64_t* const to = out.ids.data() + out.offsets[j];
      for (std::int64_t k = 0; k < length; ++k, from += sizeof(Id)) {
        to[k] = static_cast<std::int64_t>(layout::load<Id>(from));
      }
    }
    if (schema().categorical[index - schema().dense.size()].weighted) {
      read_weights<Offset>(columns, begin, i, out);
    }
    return i;
  }

  template <typename Offset>
  void read_weights(const Column* columns,
                    std::size_t begin,
                    std::size_t end,
                    RawBlock::Bags& out) {
    resize_with_room(out.weights, static_cast<std::size_t>(out.offsets[end]));
    for (std::size_t j = begin; j < end; ++j) {
      const Column& column = columns[places_[j].block];
      const auto length = static_cast<std::size_t>(out.offsets[j + 1] - out.offsets[j]);
      if (length > 0) {
        std::memcpy(
            out.weights.data() + out.offsets[j],
            column.weights + sizeof(float) * first_of<Offset>(column, places_[j].sample, length),
            length * sizeof(float));
      }
    }
  }

  std::vector<std::unique_ptr<MappedFile>> maps_;  // of files_, unless these are bytes
  std::uint64_t lost_pages_ = 0;                   // of pages of any file, when last looked at
  bool replaced_ = false;                          // and said so
  std::vector<WeftFile> files_;
  std::vector<Block> blocks_;
  std::int64_t size_ = 0;
  int granule_bits_ = 0;
  std::vector<std::uint32_t> granules_;  // block of each granule's first sample; one more
  std::vector<Column> columns_;          // [columns, blocks]
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
