#include "weft/checkpoint/segments.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/step_names.h"

namespace weft::checkpoint {

using rowfile::RowId;
using rowfile::SegmentReader;

std::string rows_directory_of(const std::string& checkpoint) {
  const std::size_t end = checkpoint.find_last_not_of('/');
  const std::size_t slash = end == std::string::npos ? end : checkpoint.rfind('/', end);
  const std::string last = checkpoint.substr(slash == std::string::npos ? 0 : slash + 1,
                                             end == std::string::npos ? 0 : end + 1 - (slash + 1));
  if (last.empty() || last == "." || last == "..") {
    return join(join(checkpoint, ".."), kRowsName);
  }
  return slash == std::string::npos ? std::string(kRowsName)
                                    : join(checkpoint.substr(0, slash), kRowsName);
}

bool meet(const RowSet& a, const RowSet& b) {
  return a.size() > 0 && b.size() > 0 && std::max(a.begin, b.begin) < std::min(a.end, b.end) &&
         (a.begin - b.begin) % std::gcd(a.step, b.step) == 0;
}

Segments::Segments(io::FileSystem& files, const Manifest& manifest, std::string directory)
    : files_(files), manifest_(manifest), directory_(std::move(directory)) {
  for (std::size_t t = 0; t < manifest.tables.size(); ++t) {
    const StoredTable& table = manifest.tables[t];
    for (std::size_t s = 0; s < table.streams.size(); ++s) {
      places_.emplace(stream_key(table, table.streams[s]), StreamPlace{t, s});
    }
  }
}

std::vector<ListedSegment> Segments::list(const MarkedRanks& marked) const {
  std::vector<ListedSegment> out;
  std::size_t order = 0;
  for (const SegmentSet& set : manifest_.segments) {
    const std::vector<bool>& ranks = marked[at(set.layout)];
    for (const SegmentFile& file : set.files) {
      if (std::cmp_less(file.rank, ranks.size()) && ranks[at(file.rank)]) {
        out.push_back({&set, &file, order});
      }
      ++order;
    }
  }
  return out;
}

std::vector<ListedSegment> Segments::list() const {
  std::vector<ListedSegment> out;
  for (const SegmentSet& set : manifest_.segments) {
    for (const SegmentFile& file : set.files) {
      out.push_back({&set, &file, out.size()});
    }
  }
  return out;
}

std::string Segments::path_of(const ListedSegment& one) const {
  return join(directory_, segment_name(one.set->prefix, *one.file));
}

SegmentReader Segments::open(const ListedSegment& one) const {
  const std::string name = segment_name(one.set->prefix, *one.file);
  const std::string path = join(directory_, name);
  if (kind_of(files_, path) == io::Kind::kMissing) {
    fail(ErrorCode::kCheckpoint,
         "cannot open '{}': it is missing; the rows of a checkpoint are in the directory '{}' "
         "beside it, which must be moved and copied with it: restore it from a copy or resume "
         "from another one",
         path, kRowsName);
  }
  SegmentReader reader(files_, path, ErrorCode::kCheckpoint);
  if (reader.bytes() != one.file->bytes) {
    fail(ErrorCode::kCheckpoint,
         "'{}' has {} bytes, but {} were written; restore the checkpoint from a copy or resume "
         "from another one",
         path, reader.bytes(), one.file->bytes);
  }
  const std::uint64_t key = one.file->key != 0 ? one.file->key : name_key(name);
  if (reader.streams().front() != rowfile::Stream{key, 1}) {
    fail(ErrorCode::kCheckpoint,
         "'{}' was written under another name; restore the checkpoint from a copy or resume from "
         "another one",
         path);
  }
  for (std::size_t s = 1; s < reader.streams().size(); ++s) {
    const rowfile::Stream& stream = reader.streams()[s];
    const auto found = places_.find(stream.key);
    if (found == places_.end() || stream.row_bytes != row_bytes(found->second)) {
      fail(ErrorCode::kCheckpoint,
           "'{}' has rows of {} bytes under the key {:016x}, which the manifest does not know; "
           "restore the checkpoint from a copy or resume from another one",
           path, stream.row_bytes, stream.key);
    }
  }
  return reader;
}

std::int64_t Segments::row_bytes(const StreamPlace& place) const {
  const StoredTable& table = manifest_.tables[place.table];
  return packed_bytes(table, table.streams[place.stream]);
}

void Segments::check_id(const StreamPlace& place, RowId id) const {
  const StoredTable& table = manifest_.tables[place.table];
  if (table.ids == RowIds::kNumbers && id >= static_cast<RowId>(table.rows)) {
    fail(ErrorCode::kCheckpoint,
         "'{}': a segment has row {} of {}, which has {} rows; restore the checkpoint from a "
         "copy or resume from another one",
         directory_, id, table.parameter, table.rows);
  }
}

}  // namespace weft::checkpoint
