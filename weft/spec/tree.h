/// Inside the module: YAML text as a tree that remembers where everything stood.
///
/// yaml-cpp parses; the tree is built from its events, because its own nodes lose the second of
/// two equal keys, tell a quoted number from a plain one only by tag, and follow aliases without
/// limit. Nodes are immutable and shared: an alias is its target, a change is a copy of the path to
/// it. Size, nesting and the number of entries that aliases unfold to are limited.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/base/error.h"

namespace weft::spec {

/// Where a node comes from: a file, or an override.
struct Origin {
  std::string name;       ///< the file's name, or "--set path=value"
  bool has_lines = true;  ///< false for overrides: line and column would say nothing
};

struct Node;
using NodePtr = std::shared_ptr<const Node>;

/// One node of the tree, with the place where it stood, from line and column 1 on.
struct Node {
  /// Kinds of nodes. kNull is an empty document, and the value of a key that has none.
  enum class Kind { kNull, kScalar, kSequence, kMap };

  /// One key of a map; `key_node` has the key's own place.
  struct Entry {
    std::string key;
    NodePtr key_node;
    NodePtr value;
  };

  Kind kind = Kind::kNull;
  std::string text;     ///< of a scalar
  bool quoted = false;  ///< a quoted scalar is text, never a number
  int line = 1;
  int column = 1;
  std::shared_ptr<const Origin> origin;
  std::vector<NodePtr> items;
  std::vector<Entry> entries;
  std::size_t total = 1;  ///< nodes from here down, aliases counted each time

  /// The value of a key, or null.
  [[nodiscard]] NodePtr find(std::string_view key) const;
};

/// Locations by path, for errors found after the tree is read.
using Places = std::unordered_map<std::string, NodePtr>;

/// "file:3:5: " or "--set a=b: ".
std::string where(const Node& node);

/// "a list", "the text 'x'", ...
std::string describe(const Node& node);

/// Error(kConfig) at a node.
template <typename... Args>
[[noreturn]] void fail_at(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kConfig, where(node) + fmt::format(format, std::forward<Args>(args)...));
}

/// Parses one document. A kNull root where there is none. Error(kConfig) with file, line, column.
NodePtr parse_tree(const std::string& text, std::shared_ptr<const Origin> origin);

/// The tree with `value` at the dotted path; entries of lists are called by name or position.
/// `defaults` is the tree of a default object, for lists that the tree itself leaves out.
NodePtr with_value(const NodePtr& root,
                   const Node& defaults,
                   std::string_view path,
                   const NodePtr& value);

/// The tree with the list at the dotted path expanded: entries called "C{1..3}" become three.
NodePtr with_expanded_list(const NodePtr& root, std::string_view path);

/// The tree with `change` applied to what is at the dotted path, where there is such a node.
NodePtr with_change(const NodePtr& root,
                    std::string_view path,
                    const std::function<NodePtr(const NodePtr&)>& change);

}  // namespace weft::spec
