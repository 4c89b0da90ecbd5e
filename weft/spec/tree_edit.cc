// Changes to a tree before it becomes a struct: overrides and the expansion of list entries.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/text.h"
#include "weft/spec/tree.h"

namespace weft::spec {
namespace {

constexpr std::int64_t kMaxExpanded = 65'536;
constexpr std::int64_t kMaxValues = 1'000'000;  ///< of one expanded list
constexpr std::ptrdiff_t kMaxPathParts = 16;

/// "a.b.c" -> "a" and "b.c".
std::pair<std::string_view, std::string_view> split_first(std::string_view path) {
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::pair(path, std::string_view())
                                       : std::pair(path.substr(0, dot), path.substr(dot + 1));
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

std::shared_ptr<Node> copy_with_kind(const NodePtr& node, Node::Kind kind, const Node& like) {
  if (node != nullptr && node->kind == kind) {
    return std::make_shared<Node>(*node);
  }
  auto fresh = std::make_shared<Node>();
  fresh->kind = kind;
  fresh->line = like.line;
  fresh->column = like.column;
  fresh->origin = like.origin;
  return fresh;
}

std::string entry_name(const Node& entry) {
  const NodePtr name = entry.find("name");
  return name != nullptr && name->kind == Node::Kind::kScalar ? name->text : std::string();
}

/// Position of the entry that a path calls by name or by position.
std::size_t find_item(const Node& list, std::string_view segment, const Node& at) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    names.push_back(entry_name(*list.items[i]));
    if (names.back() == segment) {
      return i;
    }
  }
  const std::optional<std::int64_t> index = parse_count(segment);
  if (index.has_value() && *index < static_cast<std::int64_t>(list.items.size())) {
    return static_cast<std::size_t>(*index);
  }
  if (list.items.empty()) {
    fail_at(at, "there is no entry '{}': the list is empty", segment);
  }
  if (index.has_value()) {
    fail_at(at, "there is no entry {}: the list has {}", segment, list.items.size());
  }
  fail_at(at, "there is no entry '{}'; {}", segment, suggestion(segment, names));
}

NodePtr set_at(const NodePtr& node,
               const Node* defaults,
               std::string_view path,
               const NodePtr& value) {
  if (path.empty()) {
    return value;
  }
  const auto [segment, rest] = split_first(path);
  if (segment.empty()) {
    fail_at(*value, "the path has an empty part");
  }
  const bool given = node != nullptr && node->kind != Node::Kind::kNull;
  if (given && node->kind == Node::Kind::kScalar) {
    fail_at(*value, "there is nothing below {} that could be called '{}'", describe(*node),
            segment);
  }
  const bool is_list = given ? node->kind == Node::Kind::kSequence
                             : defaults != nullptr && defaults->kind == Node::Kind::kSequence;
  if (is_list) {
    auto list = given ? std::make_shared<Node>(*node) : std::make_shared<Node>(*defaults);
    const std::size_t index = find_item(*list, segment, *value);
    list->items[index] = set_at(list->items[index], nullptr, rest, value);
    return list;
  }
  auto map = copy_with_kind(node, Node::Kind::kMap, *value);
  const NodePtr inner_defaults = defaults != nullptr ? defaults->find(segment) : nullptr;
  for (Node::Entry& entry : map->entries) {
    if (entry.key == segment) {
      entry.value = set_at(entry.value, inner_defaults.get(), rest, value);
      return map;
    }
  }
  map->entries.push_back({.key = std::string(segment),
                          .key_node = value,
                          .value = set_at(nullptr, inner_defaults.get(), rest, value)});
  return map;
}

struct NumberRange {
  std::string before;
  std::string after;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The range in a name such as "C{1..26}", if it has one.
std::optional<NumberRange> find_range(const std::string& name) {
  const std::size_t open = name.find('{');
  const std::size_t dots = name.find("..", open == std::string::npos ? 0 : open);
  const std::size_t close = name.find('}', dots == std::string::npos ? 0 : dots);
  if (open == std::string::npos || dots == std::string::npos || close == std::string::npos) {
    return std::nullopt;
  }
  const std::string_view text(name);
  const auto first = parse_count(text.substr(open + 1, dots - open - 1));
  const auto last = parse_count(text.substr(dots + 2, close - dots - 2));
  if (!first.has_value() || !last.has_value()) {
    return std::nullopt;
  }
  return NumberRange{name.substr(0, open), name.substr(close + 1), *first, *last};
}

/// What one entry that stands for several is turned into.
struct Dealt {
  std::int64_t number = 0;
  std::size_t index = 0;
  std::size_t count = 1;
};

/// The node as entry `dealt` has it: numbers put in, lists dealt. `budget` counts nodes down, so
/// that aliases in an entry that stands for many cannot unfold without end.
NodePtr deal(const NodePtr& node, const Dealt& dealt, std::int64_t& budget) {
  if (--budget < 0) {
    fail_at(*node, "the list expands to too many values");
  }
  if (node->kind == Node::Kind::kSequence) {
    if (node->items.size() != dealt.count) {
      fail_at(*node, "a list of {} cannot be dealt over the {} entries that the name stands for",
              node->items.size(), dealt.count);
    }
    return node->items[dealt.index];
  }
  if (node->kind == Node::Kind::kMap) {
    auto copy = std::make_shared<Node>(*node);
    for (Node::Entry& entry : copy->entries) {
      entry.value = deal(entry.value, dealt, budget);
    }
    return copy;
  }
  const std::size_t at = node->text.find("{}");
  if (at == std::string::npos) {
    return node;
  }
  auto copy = std::make_shared<Node>(*node);
  copy->text.replace(at, 2, std::to_string(dealt.number));
  return copy;
}

void expand_entry(const NodePtr& entry, std::vector<NodePtr>& out, std::int64_t& budget) {
  const std::optional<NumberRange> range =
      entry->kind == Node::Kind::kMap ? find_range(entry_name(*entry)) : std::nullopt;
  if (!range.has_value()) {
    out.push_back(entry);
    return;
  }
  const Node& name = *entry->find("name");
  if (range->last < range->first || range->last - range->first >= kMaxExpanded) {
    fail_at(name, "the range in '{}' must rise and stand for at most {} entries", name.text,
            kMaxExpanded);
  }
  const auto count = static_cast<std::size_t>(range->last - range->first + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const Dealt dealt = {
        .number = range->first + static_cast<std::int64_t>(i), .index = i, .count = count};
    auto copy = std::make_shared<Node>(*entry);
    for (Node::Entry& field : copy->entries) {
      if (field.key != "name") {
        field.value = deal(field.value, dealt, budget);
        continue;
      }
      auto text = std::make_shared<Node>(name);
      text->text = range->before + std::to_string(dealt.number) + range->after;
      field.value = text;
    }
    out.push_back(copy);
  }
}

}  // namespace

NodePtr with_value(const NodePtr& root,
                   const Node& defaults,
                   std::string_view path,
                   const NodePtr& value) {
  if (std::count(path.begin(), path.end(), '.') >= kMaxPathParts) {
    fail_at(*value, "the path has more than {} parts", kMaxPathParts);
  }
  return set_at(root, &defaults, path, value);
}

NodePtr with_change(const NodePtr& root,
                    std::string_view path,
                    const std::function<NodePtr(const NodePtr&)>& change) {
  if (path.empty()) {
    return change(root);
  }
  if (root->kind != Node::Kind::kMap) {
    return root;
  }
  const auto [segment, rest] = split_first(path);
  auto copy = std::make_shared<Node>(*root);
  for (Node::Entry& entry : copy->entries) {
    if (entry.key == segment) {
      entry.value = with_change(entry.value, rest, change);
    }
  }
  return copy;
}

NodePtr with_expanded_list(const NodePtr& root, std::string_view path) {
  return with_change(root, path, [](const NodePtr& list) -> NodePtr {
    if (list->kind != Node::Kind::kSequence) {
      return list;
    }
    std::vector<NodePtr> items;
    std::int64_t budget = kMaxValues;
    for (const NodePtr& entry : list->items) {
      expand_entry(entry, items, budget);
    }
    auto copy = std::make_shared<Node>(*list);
    copy->items = std::move(items);
    return copy;
  });
}

}  // namespace weft::spec
