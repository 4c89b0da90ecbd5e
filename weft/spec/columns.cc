#include "weft/spec/columns.h"

#include <fmt/format.h>

namespace weft::spec {
namespace {

KnownColumns criteo() {
  constexpr int kIntegers = 13;
  constexpr int kCategories = 26;
  KnownColumns columns;
  for (int i = 1; i <= kIntegers; ++i) {
    columns.dense.push_back(fmt::format("I{}", i));
  }
  for (int i = 1; i <= kCategories; ++i) {
    columns.categorical.push_back(fmt::format("C{}", i));
  }
  columns.labels = {"label"};
  return columns;
}

KnownColumns movielens() {
  return {.dense = {"click_rate", "genre_click_rate", "recent_click_rate", "history",
                    "film_click_rate", "film_history"},
          .categorical = {"user", "film", "genres", "hour", "weekday", "liked", "disliked"},
          .labels = {"label"},
          .sample_weights = {"rating"},  // the label's source, so never a feature
          .weighted = {}};
}

KnownColumns synthetic(const SyntheticConfig& config) {
  KnownColumns columns;
  for (std::int64_t i = 1; i <= config.dense_columns; ++i) {
    columns.dense.push_back(fmt::format("d{}", i));
  }
  for (const SyntheticColumn& column : config.columns) {
    columns.categorical.push_back(column.name);
    if (column.weighted) {
      columns.weighted.push_back(column.name);
    }
  }
  columns.labels = {"label"};
  return columns;
}

}  // namespace

std::optional<KnownColumns> known_columns(const DataConfig& data) {
  switch (data.format) {
    case DataFormat::kSynthetic:
      return synthetic(data.synthetic);
    case DataFormat::kCriteo:
      return criteo();
    case DataFormat::kMovielens:
      return movielens();
    case DataFormat::kWeft:
      break;
  }
  return std::nullopt;
}

}  // namespace weft::spec
