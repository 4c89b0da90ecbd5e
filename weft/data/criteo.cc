#include "weft/data/criteo.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/criteo_decode.h"
#include "weft/data/criteo_text.h"

namespace weft::data {
namespace {

Schema criteo_schema() {
  Schema schema;
  schema.labels = {"label"};
  for (std::size_t field = 1; field < kCriteoFields; ++field) {
    if (field <= kCriteoIntegers) {
      schema.dense.push_back(criteo_column(field));
    } else {
      schema.categorical.push_back({criteo_column(field), false, false});
    }
  }
  return schema;
}

class CriteoSource final : public Source {
 public:
  explicit CriteoSource(std::vector<std::string> files)
      : schema_(criteo_schema()),
        selection_(ColumnSelection::all(schema_)),
        text_(std::move(files)) {}

  [[nodiscard]] const Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override {
    const std::vector<std::string>& files = text_.files();
    const std::string name = std::filesystem::path(files.front()).filename().string();
    return files.size() == 1 ? fmt::format("criteo {}", name)
                             : fmt::format("criteo {} and {} more files", name, files.size() - 1);
  }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return text_.load(first, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    CriteoDecoder decoder(selection_, sample_ids.size(), out);
    std::array<std::string_view, CriteoDecoder::kTile> lines;
    for (std::size_t first = 0; first < sample_ids.size(); first += lines.size()) {
      const auto ids = sample_ids.subspan(first, std::min(lines.size(), sample_ids.size() - first));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        WEFT_CHECK(ids[i] >= text_.first() && ids[i] < text_.end(),
                   "sample {} outside the loaded [{}, {})", ids[i], text_.first(), text_.end());
        lines[i] = text_.line(ids[i]);
      }
      if (!decoder.add(std::span(lines).first(ids.size()))) {
        fail_in(ids);
      }
    }
    decoder.finish();
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema_, columns);
  }

  void use(ThreadPool* pool) override { text_.use(pool); }

  void report_to(WorkProgress* progress) override {
    progress_ = progress;
    text_.report_to(progress);
  }

  [[nodiscard]] bool concurrent_reads() const override { return true; }

  [[nodiscard]] bool random_access() const override { return false; }

  [[nodiscard]] std::int64_t size() const override { return text_.total(); }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    return fingerprint_of(sample_files(text_.files(), kEvalPlaces, progress_));
  }

  [[nodiscard]] std::vector<FileContent> content(std::int64_t most) const override {
    const std::span<const std::string> files = text_.files();
    const auto count = std::min<std::size_t>(files.size(), static_cast<std::size_t>(most));
    return sample_files(files.first(count), kTrainPlaces, progress_);
  }

 private:
  /// Says what is wrong with the first bad line among these samples.
  [[noreturn]] void fail_in(std::span<const std::int64_t> sample_ids) const {
    CriteoSample sample;
    for (const std::int64_t id : sample_ids) {
      parse_criteo_line(text_.line(id), text_.place(id), sample);
    }
    fail(ErrorCode::kInternal, "no line of samples {} and following is bad, but they were refused",
         sample_ids.front());
  }

  Schema schema_;
  ColumnSelection selection_;
  CriteoText text_;
  WorkProgress* progress_ = nullptr;
};

}  // namespace

std::unique_ptr<Source> open_criteo(std::vector<std::string> files) {
  WEFT_CHECK(!files.empty());
  return std::make_unique<CriteoSource>(std::move(files));
}

}  // namespace weft::data
