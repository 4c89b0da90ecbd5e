#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"
#include "weft/spec/describe.h"
#include "weft/spec/document.h"
#include "weft/spec/text.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

struct WriteOptions {
  const std::map<std::string, std::string>* defaults = nullptr;  ///< given: comments are written
  bool only_deciding = false;  ///< leave out what config_hash does
};

class YamlWriter final : public Visitor {
 public:
  YamlWriter(std::string& out, const WriteOptions& options) : out_(out), options_(options) {}

  void value(const Field& field, const Value& value) override {
    if (options_.only_deciding && (!field.decides_weights || field.unhashed == value_text(value))) {
      return;
    }
    if (!field.unwritten.empty() && field.unwritten == value_text(value)) {
      return;
    }
    if (options_.defaults != nullptr) {
      comment(field, type_text(value), range_text(field, value));
    }
    fmt::format_to(std::back_inserter(out_), "{}{}: {}\n", lead(), field.name, value_text(value));
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    if (options_.only_deciding && !field.decides_weights) {
      return;
    }
    comment(field, {}, {});
    const std::size_t before = out_.size();
    out_ += fmt::format("{}{}:\n", lead(), field.name);
    const std::size_t empty = out_.size();
    YamlWriter inner = below(field, ".");
    inner.indent_ = indent_ + 2;
    body(inner);
    if (options_.only_deciding && field.unhashed == "{}" && out_.size() == empty) {
      out_.resize(before);
    }
  }

  void list(const Field& field, const ListAccess& access) override {
    comment(field, {}, {});
    if (access.size() == 0) {
      out_ += fmt::format("{}{}: []\n", lead(), field.name);
      return;
    }
    out_ += fmt::format("{}{}:\n", lead(), field.name);
    YamlWriter inner = below(field, "[].");
    inner.indent_ = indent_ + 4;
    for (std::size_t i = 0; i < access.size(); ++i) {
      inner.opens_item_ = true;
      access.visit(inner, i);
      inner.options_.defaults = nullptr;  // the first entry has said it
    }
  }

  /// Checkpoints of before have a hash of a text with this line in it.
  void gone(const GoneKey& key) override {
    if (options_.only_deciding) {
      out_ += fmt::format("{}{}: {}\n", lead(), key.name, key.value);
    }
  }

 private:
  [[nodiscard]] YamlWriter below(const Field& field, std::string_view separator) const {
    YamlWriter inner(out_, options_);
    if (options_.defaults != nullptr) {
      inner.prefix_ = fmt::format("{}{}{}", prefix_, field.name, separator);
    }
    return inner;
  }

  /// The indentation of the next line; the first of a list's entry has its dash.
  std::string lead() {
    return std::exchange(opens_item_, false) ? std::string(indent_ - 2, ' ') + "- "
                                             : std::string(indent_, ' ');
  }

  void comment(const Field& field, std::string_view type, std::string_view range) {
    if (options_.defaults == nullptr) {
      return;
    }
    std::string facts(type);
    const auto add = [&](std::string_view label, std::string_view text) {
      if (!text.empty()) {
        facts += fmt::format("{}{}{}", facts.empty() ? "" : "; ", label, text);
      }
    };
    add("unit: ", field.unit);
    add("range: ", range);
    add("default: ", options_.defaults->at(prefix_ + std::string(field.name)));
    wrap(field.meaning);
    if (!facts.empty()) {
      wrap(fmt::format("({})", facts));
    }
  }

  /// Comment lines of at most 100 columns.
  void wrap(std::string_view text) {
    constexpr std::size_t kWidth = 98;
    const std::string start = std::string(indent_, ' ') + "#";
    std::string line = start;
    while (!text.empty()) {
      const std::size_t space = text.find(' ');
      const std::string_view word = text.substr(0, space);
      if (line.size() > start.size() && line.size() + 1 + word.size() > kWidth) {
        out_ += line + "\n";
        line = start;
      }
      line += fmt::format(" {}", word);
      text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
    }
    out_ += line + "\n";
  }

  std::string& out_;
  WriteOptions options_;
  std::string prefix_;
  std::size_t indent_ = 0;
  bool opens_item_ = false;
};

bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 12> kReserved = {
      "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", "yes", "no", "on"};
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
  };
  if (text.empty() || !letter(text[0])) {
    return false;
  }
  for (const std::string_view reserved : kReserved) {
    if (text == reserved) {
      return false;
    }
  }
  for (const char c : text) {
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.' && c != '-') {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string quote_yaml(std::string_view text) {
  if (is_plain(text)) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string to_yaml(const Config& config) {
  Config copy = config;
  std::string out;
  YamlWriter writer(out, {});
  visit(writer, copy);
  return out;
}

std::string to_commented_yaml(const Config& config) {
  Config copy = config;
  const std::map<std::string, std::string> defaults = default_texts();
  std::string out;
  YamlWriter writer(out, {.defaults = &defaults});
  visit(writer, copy);
  return out;
}

std::string plan_to_yaml(const Plan& plan) {
  Plan copy = plan;
  std::string out;
  YamlWriter writer(out, {});
  visit(writer, copy);
  if (std::ssize(out) > kMaxDocumentBytes) {
    constexpr double kMiB = 1 << 20;
    fail(ErrorCode::kConfig,
         "the plan of {} on {} takes {:.1f} MiB and may have {:.0f}: it could not be read again, "
         "from its file or from a checkpoint; a table of which each rank has an equal part takes "
         "100 bytes, and one cut otherwise as many for each of its shards: take another "
         "tables[].sharding, tables without hot rows, or fewer ranks",
         counted(std::ssize(plan.tables), "table"), counted(plan.world(), "rank"),
         static_cast<double>(out.size()) / kMiB, static_cast<double>(kMaxDocumentBytes) / kMiB);
  }
  return out;
}

std::string write_document(const Walk& walk) {
  std::string out;
  YamlWriter writer(out, {});
  walk(writer);
  return out;
}

std::uint64_t config_hash(const Config& config) {
  Config copy = config;
  fill_defaults(copy);
  std::string out;
  YamlWriter writer(out, {.only_deciding = true});
  visit(writer, copy);
  return hash_string(out);
}

std::uint64_t plan_hash(const Plan& plan) {
  Plan copy = plan;
  std::string out;
  YamlWriter writer(out, {.only_deciding = true});
  visit(writer, copy);
  return hash_string(out);
}

}  // namespace weft::spec
