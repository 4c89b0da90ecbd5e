#include "weft/spec/tree.h"

#include <sstream>
#include <unordered_set>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace weft::spec {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxNodes = 1'000'000;
constexpr std::size_t kMaxDepth = 32;  ///< the deepest configuration has 6

/// Builds the tree from the parser's events.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const Origin> origin) : origin_(std::move(origin)) {}

  NodePtr root() const { return root_; }

  void OnDocumentStart(const YAML::Mark&) override {}

  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    finish(new_node(Node::Kind::kNull, mark), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      fail_at(*new_node(Node::Kind::kNull, mark), "an alias inside its own anchor has no end");
    }
    add(found->second);
  }

  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = new_node(Node::Kind::kScalar, mark);
    check_tag(*node, tag);
    node->text = value;
    node->quoted = tag == "!";
    finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(Node::Kind::kSequence, mark, tag, anchor);
  }

  void OnSequenceEnd() override { end(); }

  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(Node::Kind::kMap, mark, tag, anchor);
  }

  void OnMapEnd() override { end(); }

 private:
  struct Frame {
    std::shared_ptr<Node> node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    NodePtr key;
    std::unordered_set<std::string> keys;
  };

  [[nodiscard]] std::shared_ptr<Node> new_node(Node::Kind kind, const YAML::Mark& mark) const {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->line = mark.line + 1;
    node->column = mark.column + 1;
    node->origin = origin_;
    return node;
  }

  static void check_tag(const Node& node, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail_at(node, "the tag '{}' has no meaning here; remove it", tag);
    }
  }

  void start(Node::Kind kind,
             const YAML::Mark& mark,
             const std::string& tag,
             YAML::anchor_t anchor) {
    auto node = new_node(kind, mark);
    check_tag(*node, tag);
    if (stack_.size() >= kMaxDepth) {
      fail_at(*node, "nested more than {} deep", kMaxDepth);
    }
    stack_.push_back({.node = std::move(node), .anchor = anchor, .key = nullptr, .keys = {}});
  }

  void end() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    finish(std::move(frame.node), frame.anchor);
  }

  void finish(std::shared_ptr<Node> node, YAML::anchor_t anchor) {
    const NodePtr done = std::move(node);
    if (anchor != YAML::NullAnchor) {
      anchors_[anchor] = done;
    }
    add(done);
  }

  void add(const NodePtr& node) {
    if (stack_.empty()) {
      root_ = node;
      return;
    }
    Frame& frame = stack_.back();
    Node& parent = *frame.node;
    if (parent.kind == Node::Kind::kMap && frame.key == nullptr) {
      if (node->kind != Node::Kind::kScalar) {
        fail_at(*node, "a key must be a word, not {}", describe(*node));
      }
      if (!frame.keys.insert(node->text).second) {
        fail_at(*node, "the key '{}' stands twice in one section (first in line {})", node->text,
                first_line(parent, node->text));
      }
      frame.key = node;
      return;
    }
    parent.total += node->total;
    if (parent.total > kMaxNodes) {
      fail_at(*node, "here it has more than {} values{}", kMaxNodes,
              anchors_.empty() ? "; make it shorter" : ", as its aliases unfold");
    }
    if (parent.kind == Node::Kind::kMap) {
      const NodePtr value = node->kind == Node::Kind::kNull ? null_of(*frame.key) : node;
      parent.entries.push_back({.key = frame.key->text, .key_node = frame.key, .value = value});
      frame.key = nullptr;
    } else {
      parent.items.push_back(node);
    }
  }

  /// What a key without a value has; the parser's mark would be that of the next key.
  static NodePtr null_of(const Node& key) {
    auto node = std::make_shared<Node>(key);
    node->kind = Node::Kind::kNull;
    return node;
  }

  static int first_line(const Node& map, const std::string& key) {
    for (const Node::Entry& entry : map.entries) {
      if (entry.key == key) {
        return entry.key_node->line;
      }
    }
    return map.line;
  }

  std::shared_ptr<const Origin> origin_;
  NodePtr root_;
  std::vector<Frame> stack_;
  std::unordered_map<YAML::anchor_t, NodePtr> anchors_;
};

Node place(const std::shared_ptr<const Origin>& origin, const YAML::Mark& mark) {
  Node node;
  node.origin = origin;
  node.line = mark.is_null() ? 1 : mark.line + 1;
  node.column = mark.is_null() ? 1 : mark.column + 1;
  return node;
}

}  // namespace

NodePtr Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) {
      return entry.value;
    }
  }
  return nullptr;
}

std::string where(const Node& node) {
  if (node.origin == nullptr) {
    return {};
  }
  return node.origin->has_lines
             ? fmt::format("{}:{}:{}: ", node.origin->name, node.line, node.column)
             : fmt::format("{}: ", node.origin->name);
}

std::string describe(const Node& node) {
  constexpr std::size_t kShown = 40;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kSequence:
      return fmt::format("a list of {}", node.items.size());
    case Node::Kind::kMap:
      return "a section";
    case Node::Kind::kScalar:
      break;
  }
  const std::string shown =
      node.text.size() <= kShown ? node.text : node.text.substr(0, kShown) + "...";
  return node.quoted ? fmt::format("the text \"{}\"", shown) : fmt::format("'{}'", shown);
}

NodePtr parse_tree(const std::string& text, std::shared_ptr<const Origin> origin) {
  if (text.size() > kMaxBytes) {
    fail_at(place(origin, YAML::Mark::null_mark()),
            "{} bytes are too many for a configuration (at most {})", text.size(), kMaxBytes);
  }
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder(origin);
    if (!parser.HandleNextDocument(builder) || builder.root() == nullptr) {
      return std::make_shared<Node>(place(origin, YAML::Mark::null_mark()));
    }
    TreeBuilder second(origin);
    if (parser.HandleNextDocument(second)) {
      fail_at(second.root() == nullptr ? place(origin, YAML::Mark::null_mark()) : *second.root(),
              "a second document begins here; a file holds one");
    }
    return builder.root();
  } catch (const YAML::Exception& error) {
    fail_at(place(origin, error.mark), "this is not YAML: {}", error.msg);
  }
}

}  // namespace weft::spec
