#include "weft/spec/document.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <ios>
#include <memory>

#include "weft/base/error.h"
#include "weft/spec/parse.h"

namespace weft::spec {

Where read_document(const std::string& text, const std::string& file, const Walk& walk) {
  const NodePtr root = parse_tree(text, std::make_shared<Origin>(Origin{.name = file}));
  if (root->kind == Node::Kind::kNull) {
    fail(ErrorCode::kConfig, "{}: holds nothing; begin with 'version: 1'", file);
  }
  const auto places = std::make_shared<Places>();
  bind_tree(root, walk, *places);
  if (root->find("version") == nullptr) {
    fail(ErrorCode::kConfig, "{}: the key 'version' is missing; add 'version: 1'", file);
  }
  check_bounds(walk, *places);
  return [places](const std::string& path) { return where_of(*places, path); };
}

std::string read_config_file(const std::string& path, const std::string& what) {
  constexpr std::streamsize kLimit = kMaxDocumentBytes;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(kLimit) + 1, '\0');
  file.read(text.data(), kLimit + 1);
  if (!file.is_open() || file.bad()) {
    fail(ErrorCode::kConfig, "cannot read the {} '{}': {}", what, path,
         errno == 0 ? "read error" : std::strerror(errno));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace weft::spec
