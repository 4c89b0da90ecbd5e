/// Helpers of the data tests: files in a temporary folder, expected errors, tiny logs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/data/source.h"

namespace weft::data {

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_data_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make a temporary folder");
    }
    path_ = name;
  }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline spec::Config criteo_config_of(std::vector<std::string> paths) {
  spec::Config config;
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = std::move(paths);
  return config;
}

/// Calls and expects an Error of that code whose message holds all `parts`.
template <typename Call>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error";
}

/// A folder of the real data, empty where it is not there.
inline std::string real_data(const std::string& folder) {
  const char* const set = std::getenv("WEFT_DATA");
  const std::string root = set != nullptr ? set : std::string(WEFT_SOURCE_DIR) + "/../shared/data";
  const std::string path = root + "/" + folder;
  return std::filesystem::exists(path) ? path : "";
}

/// Samples [first, first + count), read in order.
inline RawBlock read_range(Source& source, std::int64_t first, std::int64_t count) {
  const std::int64_t loaded = source.load(first, count);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(loaded));
  std::iota(ids.begin(), ids.end(), first);
  RawBlock block;
  source.read(ids, block);
  return block;
}

/// A Criteo line whose fields tell the sample: I1 = sample, C1 = sample, C2 = sample % 7, some
/// fields missing.
inline std::string criteo_line(std::int64_t sample) {
  std::string line = sample % 3 == 0 ? "1" : "0";
  line += "\t" + std::to_string(sample) + "\t-1";
  for (int i = 3; i <= 13; ++i) {
    line += (sample + i) % 5 == 0 ? "\t" : "\t" + std::to_string(i * 10);
  }
  char hex[16];
  std::snprintf(hex, sizeof hex, "%08llx", static_cast<unsigned long long>(sample));
  line += std::string("\t") + hex;
  std::snprintf(hex, sizeof hex, "%llx", static_cast<unsigned long long>(sample % 7));
  line += std::string("\t") + hex;
  for (int i = 3; i <= 26; ++i) {
    line += (sample + i) % 4 == 0 ? "\t" : "\tfffffff" + std::to_string(i % 10);
  }
  return line;
}

inline std::string criteo_text(std::int64_t first, std::int64_t count) {
  std::string text;
  for (std::int64_t s = first; s < first + count; ++s) {
    text += criteo_line(s) + "\n";
  }
  return text;
}

}  // namespace weft::data
