// A configuration is compared, value by value, with a reference that has its entries and otherwise
// the defaults.
#include "weft/spec/changed.h"

#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/spec/describe.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

using Texts = std::map<std::string, std::string>;

/// Texts of all values by path: "tables[3].num_embeddings".
class TextCollector final : public Visitor {
 public:
  TextCollector(std::string prefix, Texts& out) : prefix_(std::move(prefix)), out_(out) {}

  void value(const Field& field, const Value& value) override {
    out_[path(field)] = value_text(value);
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    TextCollector inner(path(field) + ".", out_);
    body(inner);
  }

  void list(const Field& field, const ListAccess& access) override {
    for (std::size_t i = 0; i < access.size(); ++i) {
      TextCollector inner(fmt::format("{}[{}].", path(field), i), out_);
      access.visit(inner, i);
    }
  }

 private:
  [[nodiscard]] std::string path(const Field& field) const {
    return prefix_ + std::string(field.name);
  }

  std::string prefix_;
  Texts& out_;
};

Texts texts_of(Config config) {
  Texts texts;
  TextCollector collector("", texts);
  visit(collector, config);
  return texts;
}

Texts below(const Texts& texts, const std::string& path) {
  Texts found;
  for (auto one = texts.lower_bound(path); one != texts.end() && one->first.starts_with(path);
       ++one) {
    found.insert(*one);
  }
  return found;
}

template <typename Entry>
std::vector<Entry> named_as(const std::vector<Entry>& entries) {
  std::vector<Entry> named(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    named[i].name = entries[i].name;
  }
  return named;
}

/// What `config` would be if nothing were said but the names of its entries.
Config reference_of(const Config& config) {
  Config reference;
  reference.data.synthetic.columns = named_as(config.data.synthetic.columns);
  reference.dense_features = named_as(config.dense_features);
  reference.sparse_features = named_as(config.sparse_features);
  reference.tasks = named_as(config.tasks);
  reference.tables = named_as(config.tables);
  for (Table& table : reference.tables) {
    table.optimizer = config.sparse_optimizer;
  }
  fill_defaults(reference);
  for (std::size_t i = 0; i < config.sparse_features.size(); ++i) {
    const SparseFeature& feature = config.sparse_features[i];
    reference.sparse_features[i].salt =
        feature.mapping == IdMapping::kHash ? feature.table : std::string();
  }
  return reference;
}

/// Shared by the writers of one configuration.
struct Comparison {
  Texts own, reference, fresh;
  std::map<std::string, std::string> defaults = default_texts();
  std::set<std::string> said = {};  ///< keys whose default has been a comment
};

class ChangedWriter final : public Visitor {
 public:
  ChangedWriter(Comparison& comparison, std::string& out) : comparison_(comparison), out_(out) {}

  void value(const Field& field, const Value& value) override {
    const std::string path = prefix_ + std::string(field.name);
    const bool names = field.name == (prefix_.empty() ? "version" : key_);
    const std::string text = value_text(value);
    if (!names && comparison_.reference.at(path) == text) {
      return;
    }
    const std::string key = general_ + std::string(field.name);
    const std::string& otherwise = comparison_.defaults.at(key);
    const bool comments = !names && !otherwise.empty() && otherwise != "required" &&
                          comparison_.said.insert(key).second;
    out_ += fmt::format("{:{}}{}: {}{}\n", "", indent_, field.name, text,
                        comments ? "  # default: " + otherwise : "");
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    std::string text;
    ChangedWriter inner = inside(text, fmt::format("{}.", field.name), 2);
    inner.general_ = fmt::format("{}{}.", general_, field.name);
    body(inner);
    if (!text.empty()) {
      out_ += fmt::format("{:{}}{}:\n{}", "", indent_, field.name, text);
    }
  }

  void list(const Field& field, const ListAccess& access) override {
    const std::string path = fmt::format("{}{}[", prefix_, field.name);
    if (below(comparison_.own, path) == below(comparison_.fresh, path)) {
      return;
    }
    out_ += fmt::format("{:{}}{}:\n", "", indent_, field.name);
    for (std::size_t i = 0; i < access.size(); ++i) {
      std::string text;
      ChangedWriter inner = inside(text, fmt::format("{}[{}].", field.name, i), 4);
      inner.general_ = fmt::format("{}{}[].", general_, field.name);
      inner.key_ = access.key;
      access.visit(inner, i);
      text[indent_ + 2] = '-';  // its first key, which is its name, has been written
      out_ += text;
    }
  }

 private:
  ChangedWriter inside(std::string& text, const std::string& part, std::size_t deeper) {
    ChangedWriter inner(comparison_, text);
    inner.prefix_ = prefix_ + part;
    inner.indent_ = indent_ + deeper;
    return inner;
  }

  Comparison& comparison_;
  std::string& out_;
  std::string prefix_;    // "tables[3]."
  std::string general_;   // "tables[]."
  std::string_view key_;  // the key by which an entry of this list is called
  std::size_t indent_ = 0;
};

}  // namespace

std::string to_changed_yaml(const Config& config) {
  Config complete = config;
  fill_defaults(complete);
  Comparison comparison{.own = texts_of(complete),
                        .reference = texts_of(reference_of(complete)),
                        .fresh = texts_of(Config{})};
  std::string out;
  ChangedWriter writer(comparison, out);
  visit(writer, complete);
  return out;
}

}  // namespace weft::spec
