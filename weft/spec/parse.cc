// From text to a checked configuration: parse, expand, override, inherit, bind, complete, validate.
#include "weft/spec/parse.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/spec/document.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

/// Paths of the lists whose entries expand.
class ExpandingLists final : public Visitor {
 public:
  ExpandingLists(std::string prefix, std::vector<std::string>& out)
      : prefix_(std::move(prefix)), out_(out) {}

  void value(const Field&, const Value&) override {}

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    ExpandingLists inner(prefix_ + std::string(field.name) + ".", out_);
    body(inner);
  }

  void list(const Field& field, const ListAccess& access) override {
    if (access.expands) {
      out_.push_back(prefix_ + std::string(field.name));
    }
  }

 private:
  std::string prefix_;
  std::vector<std::string>& out_;
};

NodePtr expand(NodePtr root) {
  Config config;
  std::vector<std::string> paths;
  ExpandingLists collector("", paths);
  visit(collector, config);
  for (const std::string& path : paths) {
    root = with_expanded_list(root, path);
  }
  return root;
}

NodePtr default_tree() {
  return parse_tree(to_yaml(Config{}),
                    std::make_shared<Origin>(Origin{.name = "defaults", .has_lines = false}));
}

std::string trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

NodePtr apply_override(const NodePtr& root, const Node& defaults, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string path = trim(text.substr(0, equals));
  if (equals == std::string::npos || path.empty()) {
    fail(ErrorCode::kUsage, "--set {}: an override is written path=value, such as train.steps=10",
         text);
  }
  auto origin = std::make_shared<Origin>(Origin{.name = "--set " + text, .has_lines = false});
  const std::string value = trim(text.substr(equals + 1));
  NodePtr node = parse_tree(value, origin);
  if (value.empty()) {
    auto nothing = std::make_shared<Node>(*node);
    nothing->kind = Node::Kind::kScalar;
    nothing->quoted = true;
    node = nothing;
  }
  return expand(with_value(root, defaults, path, node));
}

/// Gives every table's optimizer the keys of sparse_optimizer that it does not set itself.
NodePtr inherit_optimizer(const NodePtr& root) {
  const NodePtr shared = root->find("sparse_optimizer");
  if (shared == nullptr || shared->kind != Node::Kind::kMap) {
    return root;
  }
  return with_change(root, "tables", [&](const NodePtr& tables) -> NodePtr {
    auto list = std::make_shared<Node>(*tables);
    for (NodePtr& table : list->items) {
      const NodePtr own = table->find("optimizer");
      if (table->kind != Node::Kind::kMap || (own != nullptr && own->kind == Node::Kind::kScalar) ||
          (own != nullptr && own->kind == Node::Kind::kSequence)) {
        continue;  // refused when it is bound
      }
      auto merged = std::make_shared<Node>(own == nullptr ? *shared : *own);
      merged->kind = Node::Kind::kMap;
      for (const Node::Entry& entry : shared->entries) {
        if (merged->find(entry.key) == nullptr) {
          merged->entries.push_back(entry);
        }
      }
      auto copy = std::make_shared<Node>(*table);
      std::erase_if(copy->entries, [](const Node::Entry& e) { return e.key == "optimizer"; });
      copy->entries.push_back({.key = "optimizer", .key_node = merged, .value = merged});
      table = copy;
    }
    return list;
  });
}

}  // namespace

Config parse_config(const std::string& text,
                    const std::string& name,
                    std::span<const std::string> overrides,
                    WrittenBy writer) {
  const auto origin = std::make_shared<Origin>(Origin{.name = name});
  NodePtr root = parse_tree(text, origin);
  if (root->kind == Node::Kind::kNull) {
    fail(ErrorCode::kConfig, "{}: holds no configuration; begin with 'version: 1'", name);
  }
  root = expand(root);
  if (!overrides.empty()) {
    const NodePtr defaults = default_tree();
    for (const std::string& entry : overrides) {
      root = apply_override(root, *defaults, entry);
    }
  }
  root = inherit_optimizer(root);
  Config config;
  Places places;
  bind_tree(root, [&](Visitor& visitor) { visit(visitor, config); }, places, writer);
  if (root->find("version") == nullptr) {
    fail(ErrorCode::kConfig, "{}: the key 'version' is missing; add 'version: 1'", name);
  }
  fill_defaults(config);
  validate_at(config, places);
  return config;
}

Config load_config(const std::string& path,
                   std::span<const std::string> overrides,
                   WrittenBy writer) {
  return parse_config(read_config_file(path, "configuration"), path, overrides, writer);
}

}  // namespace weft::spec
