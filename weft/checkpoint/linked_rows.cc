#include "weft/checkpoint/linked_rows.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kCopiedAtOnce = std::int64_t{1} << 20;

/// Whether a file system says that it does not link these two, and not that something went wrong.
bool is_refusal(const std::error_code& error) {
  constexpr int kRefusals[] = {EXDEV, EPERM, EACCES, EMLINK, EOPNOTSUPP, ENOSYS};
  return std::any_of(std::begin(kRefusals), std::end(kRefusals),
                     [&](int number) { return error == io::error_of(number); });
}

/// Whether the files have rows of shards alone that this rank saves, under their names.
bool has_saved_rows_alone(const RowFiles& files, std::span<const RowShard> shards) {
  const std::vector<RowFileStream> streams = files.streams();
  return std::all_of(streams.begin(), streams.end(), [&](const RowFileStream& stream) {
    return std::any_of(shards.begin(), shards.end(), [&](const RowShard& shard) {
      return shard.shape.first_holder && shard.state->files() == &files &&
             stream == RowFileStream{shard.key, shard.row_bytes()};
    });
  });
}

void copy_file(io::FileSystem& files,
               const RowFile& from,
               const std::string& to,
               const RowWriteOptions& options,
               WorkProgress& progress) {
  const InputFile in(files, from.path);
  OutputFile out(files, to);
  std::vector<std::byte> bytes;
  for (std::int64_t offset = 0; offset < from.bytes; offset += kCopiedAtOnce) {
    options.check();
    const std::int64_t count = std::min(kCopiedAtOnce, from.bytes - offset);
    bytes.resize(static_cast<std::size_t>(count));
    in.read(offset, bytes.data(), count);
    out.write(bytes.data(), count);
    progress.add(count);
  }
  out.finish();
}

}  // namespace

std::string describe(const SavedRows& saved) {
  if (saved.linked_files + saved.copied_files == 0) {
    return "";
  }
  const auto size = [](std::int64_t bytes) {
    return format_bytes(static_cast<std::uint64_t>(bytes));
  };
  std::string text;
  if (saved.linked_files > 0) {
    text +=
        fmt::format("{} files of rows linked, {}; ", saved.linked_files, size(saved.linked_bytes));
  }
  if (saved.copied_files > 0) {
    text += fmt::format("{} copied, {}, since the file system does not link them there; ",
                        saved.copied_files, size(saved.copied_bytes));
  }
  return text + size(saved.written_bytes) + " of rows written";
}

LinkedRows::LinkedRows(SaveSources& sources, RowLinks links) {
  for (const std::size_t i : sources.first) {
    RowShard& shard = sources.shards[i];
    RowFiles* const files = shard.state->files();
    if (files == nullptr) {
      continue;
    }
    auto found = std::find_if(sealed_.begin(), sealed_.end(),
                              [files](const Sealed& one) { return one.files == files; });
    if (found == sealed_.end()) {
      const bool is_linked =
          links == RowLinks::kWherePossible && has_saved_rows_alone(*files, sources.shards);
      found = sealed_.insert(found, {files, files->make_seal(), is_linked});
    }
    shard.seal = found->is_linked ? found->seal.get() : nullptr;
  }
}

std::int64_t LinkedRows::new_bytes() const {
  std::int64_t bytes = 0;
  for (const Sealed& one : sealed_) {
    bytes += one.is_linked ? one.files->new_bytes() : 0;
  }
  return bytes;
}

void LinkedRows::begin() {
  for (const Sealed& one : sealed_) {
    one.seal->begin();
  }
}

void LinkedRows::mark() {
  for (const Sealed& one : sealed_) {
    one.seal->mark();
  }
}

std::vector<RowFile> LinkedRows::wait(StateRows which) {
  std::vector<RowFile> files;
  for (const Sealed& one : sealed_) {
    if (one.is_linked) {
      const std::vector<RowFile>& all = one.seal->wait();
      std::copy_if(all.begin(), all.end(), std::back_inserter(files), [which](const RowFile& file) {
        return which == StateRows::kExisting || file.is_new;
      });
    }
  }
  return files;
}

/// A new file may have older entries of rows that the save before has written and nobody has
/// changed since, where cleaning has moved them there: then these are written again, behind them.
StateRows rows_to_write(const RowShard& shard, StateRows which) {
  if (shard.seal == nullptr) {
    return which;
  }
  return which == StateRows::kChanged && !shard.seal->has_moved_rows()
             ? StateRows::kChangedUnwritten
             : StateRows::kUnwritten;
}

std::vector<SegmentFile> link_files(io::FileSystem& files,
                                    std::span<const RowFile> sealed,
                                    const RowWriteOptions& options,
                                    SavedRows& saved,
                                    WorkProgress& progress) {
  std::vector<SegmentFile> out;
  for (const RowFile& one : sealed) {
    options.check();
    out.push_back(
        {.rank = options.rank, .number = std::ssize(out), .bytes = one.bytes, .key = one.key});
    const std::string path = join(options.directory, segment_name(options.prefix, out.back()));
    const auto error = files.link(one.path, path);
    if (!error) {
      ++saved.linked_files;
      saved.linked_bytes += one.bytes;
    } else if (is_refusal(error)) {
      copy_file(files, one, path, options, progress);
      ++saved.copied_files;
      saved.copied_bytes += one.bytes;
    } else {
      fail(ErrorCode::kCheckpoint, "cannot link '{}' to '{}': {}", one.path, path,
           io::describe_write_error(error));
    }
    progress.move();
  }
  return out;
}

void mark_files(std::span<RowFiles* const> files) {
  for (RowFiles* const one : std::set<RowFiles*>(files.begin(), files.end())) {
    if (one != nullptr) {
      const std::unique_ptr<RowSeal> seal = one->make_seal();
      seal->begin();
      seal->mark();
    }
  }
}

}  // namespace weft::checkpoint
