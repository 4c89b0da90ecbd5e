/// The stream by which a segment knows its own name.
#pragma once

#include <string_view>

#include "weft/base/hash.h"
#include "weft/rowfile/layout.h"

namespace weft::rowfile {

/// The first stream of a segment whose name counts: rows of 1 byte, of which there is none, and the
/// XXH3 of the name under which the file was made as key. So a file in another's place is found.
inline Stream name_stream(std::string_view name) {
  return {.key = hash_string(name), .row_bytes = 1};
}

}  // namespace weft::rowfile
