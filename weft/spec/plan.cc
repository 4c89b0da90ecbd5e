#include "weft/spec/plan.h"

#include <memory>
#include <string>

#include "weft/base/error.h"
#include "weft/spec/parse.h"

namespace weft::spec {

Plan plan_from_yaml(const std::string& text, const std::string& file) {
  const NodePtr root = parse_tree(text, std::make_shared<Origin>(Origin{.name = file}));
  if (root->kind == Node::Kind::kNull) {
    fail(ErrorCode::kConfig, "{}: holds no plan", file);
  }
  Plan plan;
  Places places;
  const auto body = [&](Visitor& visitor) { visit(visitor, plan); };
  bind_tree(root, body, places);
  for (const char* key : {"version", "ranks", "parts", "tables"}) {
    if (root->find(key) == nullptr) {
      fail(ErrorCode::kConfig, "{}: the key '{}' is missing", file, key);
    }
  }
  check_bounds(body, places);
  return plan;
}

}  // namespace weft::spec
