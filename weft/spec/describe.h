/// One description of every field: name, meaning, unit, range. A Visitor walks it over an object;
/// reading and writing YAML, checking, `weft config` and docs/parameters.md are such visitors, so
/// none of them can forget a field that another knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/base/parts.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::spec {

/// Permitted values of a number, or of every number of a list.
struct Bounds {
  /// The two ends, which are permitted unless the members below refuse them.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  ///< min itself is refused
  bool below_max = false;  ///< max itself is refused
};

/// What is said of a field, besides its type, which its value tells.
struct Field {
  std::string_view name = {};
  std::string_view meaning = {};
  std::string_view unit = {};
  Bounds bounds = {};
  std::string_view default_text = {};  ///< where the default is not the struct's value
  /// Part of config_hash(): the weights after a given step depend on it.
  bool decides_weights = true;
  /// A value, as YAML, with which config_hash() leaves the line out; "{}" of a section: where it
  /// has no other line. Of keys that are younger than checkpoints: it is what jobs did before there
  /// was the key, so these keep their hash. It stays what it is where the default changes.
  std::string_view unhashed = {};
  /// A value, as YAML, that is not written: of keys that few entries of a long list have.
  std::string_view unwritten = {};
};

/// A key that configurations had, at the place where it was (docs/adr/0013-knobs-that-are-gone.md).
/// It is refused by name, unless an earlier build has written it with the value that all jobs have
/// now. config_hash() covers a line of it as before, so checkpoints keep their hash.
struct GoneKey {
  std::string_view name = {};
  std::string_view value = {};  ///< that all jobs have now
  std::string_view now = {};    ///< what this is, for messages
};

/// A spelling that a choice had, and the one to take now. It is refused by name.
struct GoneWord {
  std::string_view name = {};
  std::string_view instead = {};
};

/// A field of an enum type: its spellings in order, and access by position among them.
struct Choice {
  std::span<const std::string_view> names;
  /// Reads, and sets, the position of the value among `names`.
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
  std::span<const GoneWord> gone = {};
};

/// A pointer to the field's value.
using Value = std::variant<std::int64_t*,
                           std::uint64_t*,
                           double*,
                           bool*,
                           std::string*,
                           Range*,
                           RowSet*,
                           std::vector<Range>*,
                           std::vector<std::int64_t>*,
                           CutSizes*,
                           std::vector<std::string>*,
                           Choice>;

class Visitor;

/// A list of described structs.
struct ListAccess {
  std::string_view key = {};  ///< the field by which an entry is called: "name", "table", or empty
  bool expands = false;  ///< entries called "C{1..26}" stand for several (docs/configuration.md)
  /// Reads, and sets, the number of entries.
  std::function<std::size_t()> size;
  std::function<void(std::size_t)> resize;           ///< new entries have the struct's defaults
  std::function<std::string(std::size_t)> label;     ///< what entry i is called, may be empty
  std::function<void(Visitor&, std::size_t)> visit;  ///< walks entry i
  std::function<void(Visitor&)> visit_default;       ///< walks a fresh entry
};

/// Sees the fields of a struct, in the order of the YAML form. It may change them through what a
/// call gives it, which is valid during that call.
class Visitor {
 public:
  virtual ~Visitor() = default;
  /// A field that is neither a struct nor a list of structs.
  virtual void value(const Field& field, const Value& value) = 0;
  /// A nested struct; `body` walks its fields.
  virtual void section(const Field& field, const std::function<void(Visitor&)>& body) = 0;
  /// A list of structs.
  virtual void list(const Field& field, const ListAccess& access) = 0;

  /// Reading and hashing alone ask for it.
  virtual void gone(const GoneKey& /*key*/) {}
};

/// "tables.C1" where entry `index` has a usable name, otherwise "tables.0"; the form that `--set`
/// takes. An empty name is none.
std::string entry_path(std::string_view list_path, std::string_view label, std::size_t index);

/// Whether a feature, table, task or column may be called so: letters, digits, '_' and '-', not
/// digits alone (those are positions), at most 128 characters.
bool is_name(std::string_view text);

/// Walks every field of the object, in the order of the YAML form.
void visit(Visitor& visitor, Config& config);
void visit(Visitor& visitor, Plan& plan);

/// "integer", "number", "true or false", "text", ...
std::string type_text(const Value& value);

/// The permitted values: "at least 1", "0 to 1, without 1", the spellings of a choice; empty where
/// anything goes.
std::string range_text(const Field& field, const Value& value);

/// The value as YAML on one line.
std::string value_text(const Value& value);

/// Keys as in "tables[].num_embeddings" with the text of their defaults.
std::map<std::string, std::string> default_texts();

/// docs/parameters.md: tables of every key.
std::string parameters_markdown();

}  // namespace weft::spec
