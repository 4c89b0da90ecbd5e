/// What walks over structs are made of: those of this module (describe_*.cc), and those of other
/// modules that have files of their own (document.h), whose walk() and label_of() are found by ADL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/spec/describe.h"

namespace weft::spec {

inline constexpr double kMaxCount =
    0x1.0p48;  ///< samples, ids: far from overflow in products with ranks
inline constexpr double kMaxRows = 0x1.0p40;
inline constexpr double kMaxWidth = 65536;
inline constexpr double kMaxRanks = 65536;
inline constexpr double kMaxReal = 1e30;  ///< finite as fp32, with room for a square root

/// Returns the bounds [min, max].
inline Bounds at_least(double min, double max = kMaxCount) {
  return {.min = min, .max = max};
}

/// Returns the bounds (min, max].
inline Bounds above(double min, double max = kMaxReal) {
  return {.min = min, .max = max, .above_min = true};
}

/// Returns the bounds of a number of either sign.
inline Bounds real() {
  return {.min = -kMaxReal, .max = kMaxReal};
}

// One walk per struct.
void walk(Visitor& v, SyntheticColumn& c);
void walk(Visitor& v, SyntheticConfig& c);
void walk(Visitor& v, ShuffleConfig& c);
void walk(Visitor& v, DataConfig& c);
void walk(Visitor& v, DenseFeature& c);
void walk(Visitor& v, SparseFeature& c);
void walk(Visitor& v, Task& c);
void walk(Visitor& v, SparseOptimizer& c);
void walk(Visitor& v, Table& c);
void walk(Visitor& v, TableMemory& c);
void walk(Visitor& v, Tiers& c);
void walk(Visitor& v, Model& c);
void walk(Visitor& v, DenseOptimizer& c);
void walk(Visitor& v, Schedule& c);
void walk(Visitor& v, Train& c);
void walk(Visitor& v, Mesh& c);
void walk(Visitor& v, Pipeline& c);
void walk_overlap(Visitor& v, Pipeline& c);  ///< what a plan may say of it
void walk(Visitor& v, Codecs& c);
void walk(Visitor& v, Numerics& c);
void walk(Visitor& v, CutRule& c);
void walk(Visitor& v, TablePlan& c);
void walk(Visitor& v, CollectiveForms& c);

/// Makes the access to an enum whose enumerators count from 0 in the order of `names`. It keeps
/// references to both.
template <typename Enum>
Choice choice(Enum& value, std::span<const std::string_view> names) {
  return {.names = names,
          .get = [&value] { return static_cast<std::size_t>(value); },
          .set = [&value](std::size_t index) { value = static_cast<Enum>(index); }};
}

/// Makes the same for a plan, which never has the first of the names, auto.
template <typename Enum>
Choice resolved_choice(Enum& value, std::span<const std::string_view> names) {
  return {.names = names.subspan(1),
          .get =
              [&value] {
                WEFT_CHECK(value != Enum{}, "a plan with auto in it");
                return static_cast<std::size_t>(value) - 1;
              },
          .set = [&value](std::size_t index) { value = static_cast<Enum>(index + 1); }};
}

/// Shows a nested struct to the visitor, walked by its walk().
template <typename T>
void section(Visitor& v, const Field& field, T& object) {
  v.section(field, [&object](Visitor& inner) { walk(inner, object); });
}

/// Returns what an entry of a list is called: its name, unless an overload says otherwise.
template <typename T>
std::string label_of(const T& entry) {
  return entry.name;
}

/// Returns the name of the table, by which an entry of a plan is called.
inline std::string label_of(const TablePlan& entry) {
  return entry.table;
}

/// Returns nothing: shards have no names, only positions.
inline std::string label_of(const CutRule&) {
  return {};
}

/// Makes the access to a layout: of a configuration, or of a plan.
Choice layout_choice(MeshLayout& layout);
Choice resolved_layout_choice(MeshLayout& layout);

/// Makes the access to the sync of a plan, where kAuto is "configured".
Choice plan_sync_choice(SyncForm& form);

/// The names of a list's entries: ListAccess::key and ListAccess::expands.
struct ListKind {
  std::string_view key = "name";
  bool expands = false;
};

inline constexpr ListKind kExpands = {.expands = true};

/// Shows a list of structs to the visitor, each walked by its walk() and called by its label_of().
template <typename T>
void list(Visitor& v, const Field& field, std::vector<T>& items, const ListKind& kind) {
  v.list(field, {.key = kind.key,
                 .expands = kind.expands,
                 .size = [&items] { return items.size(); },
                 .resize = [&items](std::size_t size) { items.assign(size, T{}); },
                 .label = [&items](std::size_t i) { return label_of(items[i]); },
                 .visit = [&items](Visitor& inner, std::size_t i) { walk(inner, items[i]); },
                 .visit_default =
                     [](Visitor& inner) {
                       T fresh;
                       walk(inner, fresh);
                     }});
}

}  // namespace weft::spec
