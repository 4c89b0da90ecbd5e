/// Files of other modules in the YAML of configurations: any struct that a Visitor walks
/// (describe.h) is read, bounded and written as `Config` is, with the same messages. The helpers of
/// walk.h make such a walk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/spec/describe.h"

namespace weft::spec {

/// A longer text is read as no document: no configuration, plan or profile.
inline constexpr std::int64_t kMaxDocumentBytes = std::int64_t{16} << 20;

/// Walks every field of one object, in the order of the YAML form.
using Walk = std::function<void(Visitor&)>;

/// "FILE:LINE:COLUMN: " of a key, or of the nearest section around it that was given: what messages
/// of checks begin with that come after reading.
using Where = std::function<std::string(const std::string& path)>;

/// Fills the object behind `walk` from text and checks its bounds; keys that are absent keep their
/// values. `file` stands in messages. Throws Error(kConfig) naming file, line, column, key and what
/// to do: not YAML, nothing in it, an unknown key, another type, out of bounds, no `version`.
Where read_document(const std::string& text, const std::string& file, const Walk& walk);

/// Every value, one spelling.
std::string write_document(const Walk& walk);

/// A file's text. `what` is what the file holds, as in "cannot read the `what` 'x.yaml'"; throws
/// Error(kConfig) so. Files above kMaxDocumentBytes are cut after that, which read_document()
/// refuses.
std::string read_config_file(const std::string& path, const std::string& what);

}  // namespace weft::spec
