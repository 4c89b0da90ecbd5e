/// Files that an option names and a command writes at its end.
#pragma once

#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/train/record_files.h"

namespace weft::cli {

/// Gives the file new contents, whole or not at all (train::replace_file). Throws Error(kIo) that
/// begins with the option and names file and reason.
inline void write_option_file(std::string_view option,
                              const std::string& path,
                              std::string_view text) {
  try {
    train::replace_file(path, text);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", option, error.what());
  }
}

}  // namespace weft::cli
