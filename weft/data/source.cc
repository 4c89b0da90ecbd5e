#include "weft/data/source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include <glob.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"
#include "weft/data/criteo.h"
#include "weft/data/movielens.h"
#include "weft/data/synthetic.h"
#include "weft/data/weft_format.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

template <typename Names>
std::int64_t find_name(const Names& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : it - names.begin();
}

/// All column names of a schema, for suggestions.
std::vector<std::string> column_names(const Schema& schema) {
  std::vector<std::string> names = schema.labels;
  names.insert(names.end(), schema.dense.begin(), schema.dense.end());
  for (const Schema::Categorical& column : schema.categorical) {
    names.push_back(column.name);
  }
  return names;
}

/// Sorted by name, which does not depend on the locale as glob's own order does.
std::vector<std::string> glob_files(const std::string& pattern, std::string_view what) {
  glob_t found{};
  // A folder that cannot be read is no folder without a match: its files would be left out.
  errno = 0;
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  const int reason = errno;
  std::vector<std::string> files;
  for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    files.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (status == GLOB_ABORTED && reason != ENOENT && reason != ENOTDIR) {
    fail(ErrorCode::kData, "{}: cannot read a folder of '{}': {}; check its permissions", what,
         pattern, std::strerror(reason));
  }
  if (files.empty()) {
    fail(ErrorCode::kData,
         "{}: no file matches '{}'; check the pattern and the working folder '{}'", what, pattern,
         fs::current_path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void check_file(const std::string& path, std::string_view what) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) {
    fail(ErrorCode::kData, "{}: cannot look at '{}': {}; check the permissions of its folder", what,
         path, error.message());
  }
  if (!fs::exists(status)) {
    fail(ErrorCode::kData, "{}: there is no file '{}'; check the path and the working folder '{}'",
         what, path, fs::current_path().string());
  }
  if (!fs::is_regular_file(status)) {
    fail(ErrorCode::kData, "{}: '{}' is not a regular file; name a file or a glob such as '{}/*'",
         what, path, path);
  }
  if (fs::file_size(path, error) == 0) {
    fail(ErrorCode::kData, "{}: the file '{}' is empty; remove it from the list or fetch it again",
         what, path);
  }
}

std::unique_ptr<Source> open_files(const spec::DataConfig& config,
                                   const std::vector<std::string>& patterns,
                                   std::string_view what) {
  std::vector<std::string> files = expand_paths(patterns, what);
  return config.format == spec::DataFormat::kCriteo ? open_criteo(std::move(files))
                                                    : open_weft(files);
}

/// The first or last part of `whole`, cut where data.eval_fraction says.
std::unique_ptr<Source> cut_fraction(std::unique_ptr<Source> whole, double fraction, Split split) {
  const std::int64_t size = whole->size();
  if (size < 0) {
    fail(
        ErrorCode::kConfig,
        "data.eval_fraction: {} is read in sequence and its number of samples is not known before; "
        "name evaluation files in data.eval_path, or convert it with 'weft data convert'",
        whole->describe());
  }
  const auto eval = static_cast<std::int64_t>(static_cast<double>(size) * fraction);
  if (eval < 1 || eval >= size) {
    fail(ErrorCode::kConfig,
         "data.eval_fraction: {} of the {} samples of {} leaves {} for evaluation and {} for "
         "training; both need one at least",
         fraction, size, whole->describe(), eval, size - eval);
  }
  return split == Split::kTrain
             ? std::make_unique<SubrangeSource>(std::move(whole), 0, size - eval)
             : std::make_unique<SubrangeSource>(std::move(whole), size - eval, eval);
}

std::unique_ptr<Source> open_unlimited(const spec::Config& config, Split split) {
  const spec::DataConfig& data = config.data;
  switch (data.format) {
    case spec::DataFormat::kSynthetic:
      return split == Split::kEval && data.synthetic.eval_samples == 0
                 ? nullptr
                 : open_synthetic(data, config.seed, split);
    case spec::DataFormat::kMovielens:
      if (data.path.size() != 1 || !data.eval_path.empty()) {
        fail(ErrorCode::kConfig,
             "data.path: movielens takes one folder (of ratings.csv and movies.csv) and splits it "
             "by time; got {} paths and {} in data.eval_path",
             data.path.size(), data.eval_path.size());
      }
      return open_movielens(data.path.front(), split);
    case spec::DataFormat::kCriteo:
    case spec::DataFormat::kWeft:
      break;
  }
  if (split == Split::kEval && !data.eval_path.empty()) {
    return open_files(data, data.eval_path, "data.eval_path");
  }
  const bool fraction = data.eval_path.empty() && data.eval_fraction > 0;
  if (split == Split::kEval && !fraction) {
    return nullptr;
  }
  std::unique_ptr<Source> whole = open_files(data, data.path, "data.path");
  return fraction ? cut_fraction(std::move(whole), data.eval_fraction, split) : std::move(whole);
}

}  // namespace

std::string_view to_string(Split split) {
  return split == Split::kTrain ? "train" : "eval";
}

std::int64_t Schema::dense_index(std::string_view name) const {
  return find_name(dense, name);
}

std::int64_t Schema::label_index(std::string_view name) const {
  return find_name(labels, name);
}

std::int64_t Schema::categorical_index(std::string_view name) const {
  const auto it = std::find_if(categorical.begin(), categorical.end(),
                               [name](const Categorical& column) { return column.name == name; });
  return it == categorical.end() ? -1 : it - categorical.begin();
}

void RawBlock::reset(const Schema& schema) {
  size = 0;
  sample_ids.clear();
  dense.resize(schema.dense.size());
  categorical.resize(schema.categorical.size());
  labels.resize(schema.labels.size());
  for (std::vector<float>& column : dense) {
    column.clear();
  }
  for (std::vector<float>& column : labels) {
    column.clear();
  }
  for (Bags& column : categorical) {
    column.offsets.clear();
    column.ids.clear();
    column.weights.clear();
  }
}

ColumnSelection ColumnSelection::all(const Schema& schema) {
  return {std::vector<char>(schema.dense.size(), 1),
          std::vector<char>(schema.categorical.size(), 1),
          std::vector<char>(schema.labels.size(), 1)};
}

ColumnSelection ColumnSelection::of(const Schema& schema, std::span<const std::string> columns) {
  ColumnSelection selection = {std::vector<char>(schema.dense.size(), 0),
                               std::vector<char>(schema.categorical.size(), 0),
                               std::vector<char>(schema.labels.size(), 0)};
  for (const std::string& name : columns) {
    if (const std::int64_t d = schema.dense_index(name); d >= 0) {
      selection.dense[static_cast<std::size_t>(d)] = 1;
    } else if (const std::int64_t c = schema.categorical_index(name); c >= 0) {
      selection.categorical[static_cast<std::size_t>(c)] = 1;
    } else if (const std::int64_t l = schema.label_index(name); l >= 0) {
      selection.labels[static_cast<std::size_t>(l)] = 1;
    } else {
      fail(ErrorCode::kConfig, "the data have no column '{}'; {}", name,
           suggestion(name, column_names(schema)));
    }
  }
  return selection;
}

SubrangeSource::SubrangeSource(std::unique_ptr<Source> inner,
                               std::int64_t first,
                               std::int64_t count)
    : inner_(std::move(inner)), first_(first), count_(count) {
  WEFT_CHECK(first >= 0 && count >= -1, "samples from {}, {} of them", first, count);
}

const Schema& SubrangeSource::schema() const {
  return inner_->schema();
}

std::string SubrangeSource::describe() const {
  if (count_ < 0) {
    return fmt::format("{}, samples from {}", inner_->describe(), first_);
  }
  return fmt::format("{}, samples [{}, {})", inner_->describe(), first_, first_ + count_);
}

std::int64_t SubrangeSource::load(std::int64_t first, std::int64_t count) {
  const std::int64_t wanted =
      count_ < 0 ? count : std::clamp<std::int64_t>(count_ - first, 0, count);
  if (first == 0 && first_ > 0) {
    inner_->load(0, 0);  // the only way to rewind
  }
  return inner_->load(first_ + first, wanted);
}

void SubrangeSource::begin_epoch() {
  inner_->begin_epoch();
}

void SubrangeSource::read(std::span<const std::int64_t> sample_ids, RawBlock& out) {
  if (first_ == 0) {
    inner_->read(sample_ids, out);
    return;
  }
  inner_ids_.resize(sample_ids.size());
  std::transform(sample_ids.begin(), sample_ids.end(), inner_ids_.begin(),
                 [this](std::int64_t id) { return id + first_; });
  inner_->read(inner_ids_, out);
  out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
}

void SubrangeSource::select(std::span<const std::string> columns) {
  inner_->select(columns);
}

void SubrangeSource::use(ThreadPool* pool) {
  inner_->use(pool);
}

void SubrangeSource::report_to(WorkProgress* progress) {
  inner_->report_to(progress);
}

bool SubrangeSource::concurrent_reads() const {
  return first_ == 0 && inner_->concurrent_reads();  // else the ids are translated in one place
}

bool SubrangeSource::random_access() const {
  return inner_->random_access();
}

std::int64_t SubrangeSource::size() const {
  const std::int64_t all = inner_->size();
  if (all < 0) {
    return -1;
  }
  const std::int64_t available = std::max<std::int64_t>(0, all - first_);
  return count_ < 0 ? available : std::min(available, count_);
}

std::uint64_t SubrangeSource::fingerprint() const {
  return hash_combine(hash_combine(inner_->fingerprint(), static_cast<std::uint64_t>(first_)),
                      static_cast<std::uint64_t>(count_));
}

std::vector<FileContent> SubrangeSource::content(std::int64_t most) const {
  return inner_->content(most);
}

std::optional<double> SubrangeSource::bayes_ne() const {
  return inner_->bayes_ne();
}

std::unique_ptr<Source> open_source(const spec::Config& config, Split split) {
  std::unique_ptr<Source> source = open_unlimited(config, split);
  const std::int64_t limit =
      split == Split::kTrain ? config.data.max_samples : config.data.max_eval_samples;
  if (source == nullptr || limit <= 0) {
    return source;
  }
  if (const std::int64_t size = source->size(); size >= 0 && size <= limit) {
    return source;
  }
  return std::make_unique<SubrangeSource>(std::move(source), 0, limit);
}

std::vector<std::string> expand_paths(std::span<const std::string> patterns,
                                      std::string_view what) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    std::error_code error;  // what cannot be looked at is said below
    if (pattern.find_first_of("*?[") != std::string::npos && !fs::exists(pattern, error)) {
      const std::vector<std::string> found = glob_files(pattern, what);
      files.insert(files.end(), found.begin(), found.end());
    } else {
      files.push_back(pattern);
    }
  }
  if (files.empty()) {
    fail(ErrorCode::kData, "{}: names no file", what);
  }
  for (const std::string& file : files) {
    check_file(file, what);
  }
  return files;
}

}  // namespace weft::data
