// The bytes of a segment: those of the document's example, and what a disk makes of them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/rowfile/segment_support.h"
#include "weft/rowfile/block.h"

namespace weft::rowfile {
namespace {

/// The lines of 8 bytes that are not zero, as the document lists them.
std::string lines_of(const std::string& bytes) {
  std::string out;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::string word = bytes.substr(i, 8);
    if (word == std::string(8, '\0')) {
      continue;
    }
    out += fmt::format("{:04x}  ", i);
    for (std::size_t k = 0; k < 8; ++k) {
      out += fmt::format("{}{:02x}", k == 4 ? " " : "", static_cast<unsigned char>(word[k]));
    }
    out += "\n";
  }
  return out;
}

/// The listing of the document without its explanations.
std::string document_lines() {
  std::ifstream in(WEFT_SOURCE_DIR "/docs/rowfile_format.md");
  std::string line;
  std::string out;
  bool is_example = false;
  while (std::getline(in, line)) {
    is_example = is_example ? line != "## Size" : line == "## Example";
    if (is_example && line.size() > 23 && line[4] == ' ' && line[5] == ' ' && line[14] == ' ') {
      out += line.substr(0, 23) + "\n";
    }
  }
  return out;
}

TEST(SegmentExample, IsThatOfTheDocument) {
  io::FaultyFileSystem files;
  SegmentWriter writer(files, kPath, {{7, 4}});
  const std::vector<float> values = {1.0F, 2.0F};
  writer.append(0, std::vector<RowId>{5, 300}, std::as_bytes(std::span(values)));
  writer.remove(0, range(6, 7));
  writer.seal();
  const std::string bytes = load(files);
  EXPECT_EQ(bytes.size(), 12288U);
  EXPECT_EQ(lines_of(bytes), document_lines());
}

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

/// A group read past the page cache into aligned memory, checked without a reader.
TEST(SegmentExample, BlocksAreReadPastThePageCache) {
  std::string folder = std::filesystem::temp_directory_path() / "weft-rowfile-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/one.rows";
  io::FileSystem& files = io::real_file_system();
  std::vector<Place> places(20);
  {
    SegmentWriter writer(files, path, {{1, 260}});
    writer.append(0, range(0, 20), rows_of(range(0, 20), 260), places);
    writer.seal();
  }
  EXPECT_EQ(state_of(files, path).size(), 20U);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor >= 0) {  // a file system may lack it
    const std::unique_ptr<std::byte, FreeDeleter> memory(
        static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBlockBytes)));
    const std::span<const std::byte> block(memory.get(), kBlockBytes);
    EXPECT_EQ(::pread(descriptor, memory.get(), kBlockBytes, places[17].block * kBlockBytes),
              kBlockBytes);
    EXPECT_EQ(find_group_fault(block, places[17].block, 0, 260), "");
    const auto row =
        block.subspan(static_cast<std::size_t>(offset_in_group(places[17].row, 260)), 260);
    EXPECT_EQ(Bytes(row.begin(), row.end()), row_of(17, 260));
    ::close(descriptor);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::rowfile
