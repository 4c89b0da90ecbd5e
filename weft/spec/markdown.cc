#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/spec/describe.h"

namespace weft::spec {
namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

/// One table per struct; nested structs follow the table of the struct they are in.
class MarkdownWriter final : public Visitor {
 public:
  MarkdownWriter(std::string prefix, const std::map<std::string, std::string>& defaults)
      : prefix_(std::move(prefix)), defaults_(defaults) {}

  void value(const Field& field, const Value& value) override {
    const std::string unit = field.unit.empty() ? std::string() : fmt::format(" ({})", field.unit);
    row(field, type_text(value) + unit, range_text(field, value));
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    row(field, "section", {});
    MarkdownWriter inner(prefix_ + std::string(field.name) + ".", defaults_);
    body(inner);
    below_ += inner.finish(field.meaning);
  }

  void list(const Field& field, const ListAccess& access) override {
    row(field, access.expands ? "list, expands" : "list", {});
    MarkdownWriter inner(prefix_ + std::string(field.name) + "[].", defaults_);
    access.visit_default(inner);
    below_ += inner.finish(field.meaning);
  }

  [[nodiscard]] std::string finish(std::string_view meaning) const {
    std::string title = prefix_.empty() ? "Top level" : prefix_.substr(0, prefix_.size() - 1);
    if (!prefix_.empty()) {
      title = fmt::format("`{}`", title);
    }
    return fmt::format(
        "\n## {}\n\n{}\n\n| key | type | default | range | meaning |\n| --- | --- | --- | --- | "
        "--- "
        "|\n{}{}",
        title, meaning, rows_, below_);
  }

 private:
  void row(const Field& field, std::string_view type, std::string_view range) {
    rows_ += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name, type,
                         escape(defaults_.at(prefix_ + std::string(field.name))), escape(range),
                         escape(field.meaning));
  }

  std::string prefix_;
  const std::map<std::string, std::string>& defaults_;
  std::string rows_;
  std::string below_;
};

}  // namespace

std::string parameters_markdown() {
  const std::map<std::string, std::string> defaults = default_texts();
  MarkdownWriter writer("", defaults);
  Config fresh;
  visit(writer, fresh);
  return "# Parameters\n\nEvery key of a configuration. Written by `weft config --markdown` from "
         "the description that also\nparses and checks it (`weft/spec/describe_*.cc`); do not "
         "edit. "
         "How entries that expand and overrides\nwork is in "
         "[configuration.md](configuration.md).\n" +
         writer.finish("The keys of the file itself.");
}

}  // namespace weft::spec
