// A checkpoint that all ranks open: what one reads goes to all along the tree over ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kSealBytes = 64;  // the checksum that closes a manifest is among them

bool is_first_of_another_host(const comm::Communicator& comm) {
  int first = 0;
  while (comm.host(first) != comm.host(comm.rank())) {
    ++first;
  }
  return first == comm.rank() && first != 0;
}

/// This host sees the manifest that rank 0 has read, by the checksum that closes it.
void check_same_manifest(const comm::Communicator& comm,
                         io::FileSystem& files,
                         const OpenedCheckpoint& opened,
                         const std::string& text) {
  const int rank = comm.world_rank(comm.rank());
  const std::string path = join(opened.directory, kManifestName);
  if (kind_of(files, path) == io::Kind::kMissing) {
    fail(ErrorCode::kCheckpoint,
         "rank {} does not see '{}', which rank 0 has read: all ranks must see one directory", rank,
         path);
  }
  const InputFile file(files, path);
  const std::int64_t bytes = std::min(std::ssize(text), kSealBytes);
  std::string end(static_cast<std::size_t>(bytes), ' ');
  const bool is_as_long = file.bytes() == std::ssize(text);
  if (is_as_long) {
    file.read(file.bytes() - bytes, end.data(), bytes);
  }
  if (!is_as_long || !text.ends_with(end)) {
    fail(ErrorCode::kCheckpoint,
         "ranks 0 and {} read different manifests from '{}': all ranks must see one directory",
         rank, opened.directory);
  }
}

}  // namespace

OpenedCheckpoint open_checkpoint(comm::Communicator& comm,
                                 Context& ctx,
                                 const std::string& path,
                                 io::FileSystem& files) {
  OpenedCheckpoint opened;
  std::string text;
  const auto begin = [&](WorkProgress& progress) {
    progress.begin({.activity = "opening", .place = fmt::format("'{}'", path)});
  };
  agree(comm, ctx, [&](WorkProgress& progress) {
    if (comm.rank() == 0) {
      begin(progress);
      opened.directory = find_checkpoint(path, files);
      const std::string file = join(opened.directory, kManifestName);
      text = load_file(files, file, kMaxManifestBytes);
      opened.manifest = manifest_from_json(text, file);
      opened.id = manifest_id(text, file);
    }
  });
  comm.share(ctx, opened.directory, 0);
  comm.share(ctx, text, 0);
  agree(comm, ctx, [&](WorkProgress& progress) {
    if (is_first_of_another_host(comm)) {
      begin(progress);
      check_same_manifest(comm, files, opened, text);
    }
    if (comm.rank() != 0) {
      const std::string file = join(opened.directory, kManifestName);
      opened.manifest = manifest_from_json(text, file);
      opened.id = manifest_id(text, file);
    }
  });
  return opened;
}

std::string share_blob(comm::Communicator& comm,
                       Context& ctx,
                       const std::string& path,
                       const std::string& name,
                       io::FileSystem& files) {
  std::string bytes;
  agree(comm, ctx, [&](WorkProgress& progress) {
    if (comm.rank() == 0) {
      progress.begin({.activity = "reading", .place = fmt::format("'{}'", path)});
      bytes = read_blob(path, name, files);
    }
  });
  comm.share(ctx, bytes, 0);
  return bytes;
}

}  // namespace weft::checkpoint
