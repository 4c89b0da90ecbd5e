// Segments of random streams, rows and tombstones, replayed in order, against a map.
#include <rapidcheck/gtest.h>

#include "tests/rowfile/segment_support.h"

namespace weft::rowfile {
namespace {

RC_GTEST_PROP(SegmentProperty, ReplayGivesTheLatestRows, ()) {
  const auto lengths =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(rc::gen::oneOf(
          rc::gen::inRange<std::int64_t>(1, 300), rc::gen::inRange<std::int64_t>(2000, 9000))));
  std::vector<Stream> streams;
  for (const std::int64_t length : lengths) {
    streams.push_back({streams.size() * 3, length});
  }
  io::FaultyFileSystem files;
  State wanted;
  std::vector<std::string> paths;
  std::uint64_t life = 0;
  for (int segment = 0; segment < 2; ++segment) {
    paths.push_back("/" + std::to_string(segment));
    SegmentWriter writer(files, paths.back(), streams);
    const auto steps = *rc::gen::inRange(0, 60);
    for (int step = 0; step < steps; ++step) {
      const auto stream = *rc::gen::inRange<std::size_t>(0, streams.size());
      const auto first = *rc::gen::element<RowId>(0, 1, 5, RowId{1} << 63, ~RowId{0} - 20);
      const auto ids = range(first, first + *rc::gen::inRange<RowId>(0, 20));
      if (*rc::gen::inRange(0, 4) == 0) {
        writer.remove(stream, ids);
        for (const RowId id : ids) {
          wanted[{stream, id}] = {};
        }
      } else {
        writer.append(stream, ids, rows_of(ids, streams[stream].row_bytes, ++life));
        for (const RowId id : ids) {
          wanted[{stream, id}] = row_of(id, streams[stream].row_bytes, life);
        }
      }
    }
    writer.seal();
  }
  State found;
  for (const std::string& path : paths) {
    const SegmentReader reader(files, path);
    reader.verify();
    replay(reader, found);
  }
  RC_ASSERT(found == wanted);
}

}  // namespace
}  // namespace weft::rowfile
