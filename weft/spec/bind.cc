// From a tree to a struct: types and keys. Ranges are checked afterwards, so that configurations
// made in code go through the same checks.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/spec/parse.h"

namespace weft::spec {
namespace {

/// Names of the fields of one struct, and the keys that are gone from it.
class NameCollector final : public Visitor {
 public:
  void value(const Field& field, const Value&) override { names.emplace_back(field.name); }

  void section(const Field& field, const std::function<void(Visitor&)>&) override {
    names.emplace_back(field.name);
  }

  void list(const Field& field, const ListAccess&) override { names.emplace_back(field.name); }

  void gone(const GoneKey& key) override { gone_keys.push_back(key); }

  std::vector<std::string> names;
  std::vector<GoneKey> gone_keys;
};

[[noreturn]] void wrong_type(const Node& node, const std::string& path, std::string_view wanted) {
  fail_at(node, "{}: expected {}, found {}", path, wanted, describe(node));
}

template <typename Integer>
Integer parse_integer(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::kScalar || node.quoted) {
    wrong_type(node, path, "an integer");
  }
  Integer value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error == std::errc::result_out_of_range ||
      (std::is_unsigned_v<Integer> && node.text.size() > 1 && node.text[0] == '-')) {
    fail_at(node, "{}: '{}' does not fit a 64-bit integer of this kind", path, node.text);
  }
  if (error != std::errc() || stop != end) {
    wrong_type(node, path, "an integer");
  }
  return value;
}

/// .inf, -.Inf, nan and their like, which YAML reads as numbers.
bool says_non_finite(std::string text) {
  std::erase_if(text, [](char c) { return c == '+' || c == '-' || c == '.'; });
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "inf" || text == "infinity" || text == "nan";
}

double parse_real(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::kScalar || node.quoted) {
    wrong_type(node, path, "a number");
  }
  double value = 0;
  const std::string& text = node.text;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (says_non_finite(text) || (error == std::errc() && stop == end && !std::isfinite(value))) {
    fail_at(node, "{}: '{}' is not finite", path, text);
  }
  if (error == std::errc::result_out_of_range) {
    fail_at(node, "{}: '{}' is out of the range of a double", path, text);
  }
  if (error != std::errc() || stop != end) {
    wrong_type(node, path, "a number");
  }
  return value;
}

bool parse_bool(const Node& node, const std::string& path) {
  if (node.kind == Node::Kind::kScalar && !node.quoted &&
      (node.text == "true" || node.text == "false")) {
    return node.text == "true";
  }
  wrong_type(node, path, "true or false");
}

std::string parse_text(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::kScalar) {
    wrong_type(node, path, "text");
  }
  return node.text;
}

/// Of a word that is gone.
[[noreturn]] void refuse_word(const Node& node,
                              const std::string& path,
                              const GoneWord& word,
                              WrittenBy writer) {
  if (writer == WrittenBy::kUser) {
    fail_at(node, "{}: {} is gone; set {} instead", path, describe(node), word.instead);
  }
  throw GoneKeyError(ErrorCode::kConfig,
                     where(node) + fmt::format("{}: {} is gone; train anew with {}, or go on with "
                                               "the build that wrote it",
                                               path, describe(node), word.instead));
}

/// Stores a node in a field, whatever the field's type is.
struct Assign {
  const Node& node;
  const std::string& path;
  WrittenBy writer;

  void operator()(std::int64_t* out) const { *out = parse_integer<std::int64_t>(node, path); }

  void operator()(std::uint64_t* out) const { *out = parse_integer<std::uint64_t>(node, path); }

  void operator()(double* out) const { *out = parse_real(node, path); }

  void operator()(bool* out) const { *out = parse_bool(node, path); }

  void operator()(std::string* out) const { *out = parse_text(node, path); }

  void operator()(Range* out) const {
    std::vector<std::int64_t> ends;
    (*this)(&ends);
    if (ends.size() != 2) {
      wrong_type(node, path, "two integers [begin, end]");
    }
    *out = {ends[0], ends[1]};
  }

  void operator()(RowSet* out) const {
    std::vector<std::int64_t> numbers;
    (*this)(&numbers);
    if (numbers.size() != 2 && numbers.size() != 3) {
      wrong_type(node, path, "two integers [begin, end], or three [begin, end, step]");
    }
    if (numbers.size() == 3 && numbers[2] < 1) {
      fail_at(node, "{}: the step from row to row must be at least 1, is {}", path, numbers[2]);
    }
    *out = {numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 1};
  }

  void operator()(std::vector<Range>* out) const {
    if (node.kind != Node::Kind::kSequence) {
      wrong_type(node, path, "a list of ranges such as [[0, 100], [512, 513]]");
    }
    out->assign(node.items.size(), {});
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      Assign{*node.items[i], fmt::format("{}.{}", path, i), writer}(&(*out)[i]);
    }
  }

  void operator()(std::vector<std::int64_t>* out) const {
    if (node.kind != Node::Kind::kSequence) {
      wrong_type(node, path, "a list of integers such as [64, 32]");
    }
    out->clear();
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      out->push_back(parse_integer<std::int64_t>(*node.items[i], fmt::format("{}.{}", path, i)));
    }
  }

  void operator()(CutSizes* out) const {
    if (node.kind == Node::Kind::kScalar) {
      // A number that is out of bounds is kept as the one size, for the check of bounds to name.
      const auto count = parse_integer<std::int64_t>(node, path);
      const bool is_count = count >= 1 && count <= kMostCuts;
      out->sizes.assign(is_count ? static_cast<std::size_t>(count) : 1, is_count ? 1 : count);
      return;
    }
    if (node.kind != Node::Kind::kSequence || node.items.empty()) {
      wrong_type(node, path, "a number, or a list of sizes such as [1, 2, 2, 1]");
    }
    (*this)(&out->sizes);
  }

  void operator()(std::vector<std::string>* out) const {
    out->clear();
    if (node.kind == Node::Kind::kScalar) {
      out->push_back(node.text);
      return;
    }
    if (node.kind != Node::Kind::kSequence) {
      wrong_type(node, path, "text or a list of text");
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      out->push_back(parse_text(*node.items[i], fmt::format("{}.{}", path, i)));
    }
  }

  void operator()(const Choice& out) const {
    std::vector<std::string> names(out.names.begin(), out.names.end());
    if (node.kind != Node::Kind::kScalar) {
      wrong_type(node, path, fmt::format("one of {}", fmt::join(names, ", ")));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == node.text) {
        out.set(i);
        return;
      }
    }
    for (const GoneWord& word : out.gone) {
      if (word.name == node.text) {
        refuse_word(node, path, word, writer);
      }
    }
    const std::string near = nearest(node.text, names);
    fail_at(node, "{}: {} is none of {}{}", path, describe(node), fmt::join(names, ", "),
            near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }
};

/// Throws unless an earlier build has written the key with the value that all jobs have now.
void check_gone(const Node::Entry& entry,
                const std::string& path,
                const GoneKey& key,
                WrittenBy writer) {
  if (writer == WrittenBy::kUser) {
    fail_at(*entry.key_node, "{}: this key is gone: {}; remove the key", path, key.now);
  }
  if (entry.value->kind != Node::Kind::kScalar || entry.value->text != key.value) {
    throw GoneKeyError(
        ErrorCode::kConfig,
        where(*entry.key_node) +
            fmt::format("{}: this key is gone, and {} with it: {}; train anew without the key, or "
                        "go on with the build that wrote it",
                        path, describe(*entry.value), key.now));
  }
}

class Binder final : public Visitor {
 public:
  Binder(const Node& map, std::string prefix, Places& places, WrittenBy writer)
      : map_(map), prefix_(std::move(prefix)), places_(places), writer_(writer) {}

  void value(const Field& field, const Value& value) override {
    const std::string path = prefix_ + std::string(field.name);
    if (const NodePtr node = take(field, path)) {
      if (node->kind == Node::Kind::kNull) {
        fail_at(*node, "{}: has no value; give one or remove the key", path);
      }
      std::visit(Assign{*node, path, writer_}, value);
    }
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    const std::string path = prefix_ + std::string(field.name);
    if (const NodePtr node = take(field, path)) {
      bind_map(*node, path, body);
    }
  }

  void list(const Field& field, const ListAccess& access) override {
    const std::string path = prefix_ + std::string(field.name);
    const NodePtr node = take(field, path);
    if (node == nullptr) {
      return;
    }
    if (node->kind != Node::Kind::kSequence && node->kind != Node::Kind::kNull) {
      wrong_type(*node, path, "a list of entries");
    }
    access.resize(node->items.size());
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      const NodePtr& item = node->items[i];
      const NodePtr called = access.key.empty() ? nullptr : item->find(access.key);
      const std::string label = called == nullptr ? std::string() : called->text;
      const std::string item_path = entry_path(path, label, i);
      places_[item_path] = called == nullptr ? item : called;
      bind_map(*item, item_path, [&](Visitor& inner) { access.visit(inner, i); });
    }
  }

  void bind_map(const Node& map,
                const std::string& path,
                const std::function<void(Visitor&)>& body) {
    if (map.kind == Node::Kind::kNull) {
      return;  // a section whose keys are all commented out
    }
    if (map.kind != Node::Kind::kMap) {
      wrong_type(map, path, "a section of keys");
    }
    refuse_unknown(map, path, body, writer_);
    Binder inner(map, path + ".", places_, writer_);
    body(inner);
  }

  static void refuse_unknown(const Node& map,
                             const std::string& path,
                             const std::function<void(Visitor&)>& body,
                             WrittenBy writer) {
    NameCollector known;
    body(known);
    for (const Node::Entry& entry : map.entries) {
      if (std::find(known.names.begin(), known.names.end(), entry.key) != known.names.end()) {
        continue;
      }
      const std::string key_path = fmt::format("{}{}{}", path, path.empty() ? "" : ".", entry.key);
      const auto found = std::find_if(known.gone_keys.begin(), known.gone_keys.end(),
                                      [&](const GoneKey& key) { return key.name == entry.key; });
      if (found == known.gone_keys.end()) {
        fail_at(*entry.key_node, "{}: unknown key; {}", key_path,
                suggestion(entry.key, known.names));
      }
      check_gone(entry, key_path, *found, writer);
    }
  }

 private:
  NodePtr take(const Field& field, const std::string& path) {
    const NodePtr node = map_.find(field.name);
    if (node != nullptr) {
      places_[path] = node;
    }
    return node;
  }

  const Node& map_;
  std::string prefix_;
  Places& places_;
  WrittenBy writer_;
};

}  // namespace

void bind_tree(const NodePtr& root,
               const std::function<void(Visitor&)>& body,
               Places& places,
               WrittenBy writer) {
  if (root->kind != Node::Kind::kMap) {
    fail_at(*root, "expected keys such as 'version: 1', found {}", describe(*root));
  }
  places[""] = root;
  Binder::refuse_unknown(*root, "", body, writer);
  Binder binder(*root, "", places, writer);
  body(binder);
}

std::string where_of(const Places& places, std::string path) {
  while (true) {
    if (const auto found = places.find(path); found != places.end()) {
      return where(*found->second);
    }
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos) {
      const auto root = places.find("");
      return root == places.end() ? std::string() : fmt::format("{}: ", root->second->origin->name);
    }
    path.resize(dot);
  }
}

}  // namespace weft::spec
