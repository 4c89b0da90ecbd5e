// Any bytes as the trace of one rank: one that can be reported, or Error(kData), or Error(kIo)
// where it speaks of other ranks' files; never a crash.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "weft/base/error.h"
#include "weft/trace/chrome.h"
#include "weft/trace/report.h"
#include "weft/trace/trace_file.h"

namespace {

namespace fs = std::filesystem;
namespace trace = weft::trace;

/// Is there while the process is.
class Folder {
 public:
  Folder() { fs::create_directories(path_); }

  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_ = fs::temp_directory_path() / ("weft_trace_fuzz_" + std::to_string(getpid()));
};

void require(bool condition) {
  if (!condition) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  std::ofstream(folder.path() / trace::chrome_file_name(0), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const std::vector<trace::RankWork> found = trace::read_trace(folder.path().string());
    require(found.size() == 1 && found.front().rank == 0 && !found.front().steps.empty());
    const trace::Report report = trace::make_report(found);
    require(report.steps > 0 && std::isfinite(report.mean.step));
    require(!trace::to_text(report).empty() && !trace::to_json(report).empty());
  } catch (const weft::Error& error) {
    require(error.code() == weft::ErrorCode::kData || error.code() == weft::ErrorCode::kIo);
  }
  return 0;
}
