#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/weft_format.h"
#include "weft/data/weft_layout.h"

namespace weft::data {

namespace {

// A block is closed early before a column has more ids than its 32-bit offsets can count.
constexpr std::size_t kMaxBlockIds = std::size_t{1} << 28;
constexpr std::int64_t kCopySamples = 16384;

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

// The file under its temporary name.
class WeftWriter::File {
 public:
  explicit File(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      fail(ErrorCode::kIo, "cannot create '{}': {}; does its folder exist and may you write there?",
           temporary_, reason());
    }
  }

  ~File() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
      ::unlink(temporary_.c_str());
    }
  }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        fail(ErrorCode::kIo, "cannot write '{}' after {} bytes: {}; is the disk full?", temporary_,
             size_, reason());
      }
      size_ += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void publish() {
    if (::fsync(descriptor_) != 0) {
      fail(ErrorCode::kIo, "cannot synchronise '{}': {}; is the disk full?", temporary_, reason());
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail(ErrorCode::kIo, "cannot rename '{}' to '{}': {}", temporary_, path_, reason());
    }
    ::close(std::exchange(descriptor_, -1));
    // The name is durable when its folder is; a file system that cannot say so loses nothing else.
    std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    folder = folder.empty() ? "." : folder;
    const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle >= 0) {
      ::fsync(handle);
      ::close(handle);
    }
  }

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

WeftWriter::WeftWriter(std::string path, Schema schema, WeftWriterOptions options)
    : schema_(std::move(schema)), options_(std::move(options)) {
  if (options_.block_samples < 1 || options_.block_samples > layout::kMaxBlockSamples) {
    fail(ErrorCode::kUsage, "blocks of {} samples; a weft file has 1 to {} per block",
         options_.block_samples, layout::kMaxBlockSamples);
  }
  const std::vector<std::byte> header = layout::encode_header(schema_);
  file_ = std::make_unique<File>(std::move(path));
  file_->write(header);
  pending_.reset(schema_);
}

WeftWriter::~WeftWriter() = default;

void WeftWriter::append(const RawBlock& block) {
  WEFT_CHECK(file_ != nullptr, "append after finish");
  WEFT_CHECK(block.dense.size() == schema_.dense.size() &&
                 block.categorical.size() == schema_.categorical.size() &&
                 block.labels.size() == schema_.labels.size(),
             "a block of another schema");
  for (std::int64_t first = 0; first < block.size;) {
    const std::int64_t room = options_.block_samples - pending_.size;
    const std::int64_t count = std::min(room, block.size - first);
    take(block, first, count);
    first += count;
    const bool many_ids =
        std::any_of(pending_.categorical.begin(), pending_.categorical.end(),
                    [](const RawBlock::Bags& bags) { return bags.ids.size() >= kMaxBlockIds; });
    if (pending_.size == options_.block_samples || many_ids) {
      write_block();
    }
  }
}

// Moves samples [first, first + count) of `block` to the end of the pending ones.
void WeftWriter::take(const RawBlock& block, std::int64_t first, std::int64_t count) {
  const auto floats = [&](const std::vector<float>& from, std::vector<float>& to) {
    WEFT_CHECK(std::cmp_equal(from.size(), block.size), "{} values of {}", from.size(), block.size);
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
    const Schema::Categorical& column = schema_.categorical[i];
    WEFT_CHECK(std::cmp_equal(from.offsets.size(), block.size + 1) &&
                   std::cmp_equal(from.ids.size(), from.offsets.back()) &&
                   from.weights.size() == (column.weighted ? from.ids.size() : 0),
               "the bags of column '{}' do not fit together", column.name);
    const auto at = [&](std::int64_t sample) {
      return from.offsets[static_cast<std::size_t>(sample)];
    };
    if (to.offsets.empty()) {
      to.offsets.push_back(0);
    }
    const std::int64_t shift = to.offsets.back() - at(first);
    for (std::int64_t sample = first; sample < first + count; ++sample) {
      const std::int64_t length = at(sample + 1) - at(sample);
      WEFT_CHECK(length >= 0 && (column.multi_valued || length <= 1),
                 "a bag of {} ids in column '{}'", length, column.name);
      to.offsets.push_back(at(sample + 1) + shift);
    }
    to.ids.insert(to.ids.end(), from.ids.begin() + at(first), from.ids.begin() + at(first + count));
    if (column.weighted) {
      to.weights.insert(to.weights.end(), from.weights.begin() + at(first),
                        from.weights.begin() + at(first + count));
    }
  }
  pending_.size += count;
}

void WeftWriter::write_chunk(std::span<const std::byte> bytes) {
  layout::append(index_, file_->size());
  layout::append(index_, static_cast<std::uint64_t>(bytes.size()));
  layout::append(index_, hash_bytes(bytes));
  file_->write(bytes);
}

void WeftWriter::write_block() {
  layout::append(index_, static_cast<std::uint64_t>(pending_.size));
  for (const std::vector<float>& column : pending_.dense) {
    layout::encode_floats(column, chunk_);
    write_chunk(chunk_);
  }
  for (const RawBlock::Bags& column : pending_.categorical) {
    layout::encode_bags(column, pending_.size, chunk_);
    write_chunk(chunk_);
  }
  for (const std::vector<float>& column : pending_.labels) {
    layout::encode_floats(column, chunk_);
    write_chunk(chunk_);
  }
  samples_ += pending_.size;
  ++blocks_;
  pending_.reset(schema_);
}

void WeftWriter::finish() {
  WEFT_CHECK(file_ != nullptr, "finish twice");
  if (pending_.size > 0) {
    write_block();
  }
  std::vector<std::byte> footer;
  layout::append(footer, static_cast<std::uint64_t>(samples_));
  layout::append(footer, static_cast<std::uint32_t>(blocks_));
  layout::append(footer, static_cast<std::uint32_t>(options_.metadata.size()));
  footer.insert(footer.end(), index_.begin(), index_.end());
  for (const auto& [key, value] : options_.metadata) {
    layout::append(footer, static_cast<std::uint32_t>(key.size()));
    layout::append(footer, static_cast<std::uint32_t>(value.size()));
    layout::append_bytes(footer, key.data(), key.size());
    layout::append_bytes(footer, value.data(), value.size());
  }
  layout::pad(footer);
  std::vector<std::byte> trailer;
  layout::append(trailer, file_->size());
  layout::append(trailer, static_cast<std::uint64_t>(footer.size()));
  layout::append(trailer, hash_bytes(footer));
  layout::append_bytes(trailer, layout::kTrailerMagic, layout::kMagicBytes);
  file_->write(footer);
  file_->write(trailer);
  file_->publish();
  file_.reset();
}

std::int64_t write_weft(Source& source,
                        const std::string& path,
                        std::int64_t samples,
                        const ProgressCallback& progress) {
  WeftWriterOptions options;
  options.metadata["source"] = source.describe();
  const bool whole = samples < 0 || (source.size() >= 0 && samples >= source.size());
  if (const std::optional<double> ne = whole ? source.bayes_ne() : std::nullopt) {
    options.metadata["bayes_ne"] = fmt::format("{}", *ne);
  }
  WeftWriter writer(path, source.schema(), std::move(options));
  const std::int64_t total = whole ? source.size() : samples;
  RawBlock block;
  std::vector<std::int64_t> ids;
  std::int64_t done = 0;
  while (whole || done < samples) {
    const std::int64_t wanted = whole ? kCopySamples : std::min(kCopySamples, samples - done);
    const std::int64_t got = source.load(done, wanted);
    ids.resize(static_cast<std::size_t>(got));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = done + static_cast<std::int64_t>(i);
    }
    if (got > 0) {
      source.read(ids, block);
      writer.append(block);
      done += got;
    }
    if (progress) {
      progress(done, total);
    }
    if (got < wanted) {
      break;
    }
  }
  writer.finish();
  return done;
}

}  // namespace weft::data
