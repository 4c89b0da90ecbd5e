/// A small configuration that is valid; tests put mistakes into it.
#pragma once

#include <string>

namespace weft::spec {

inline std::string small_yaml() {
  return R"(version: 1
seed: 7
batch_size: 64
data:
  format: synthetic
  synthetic:
    samples: 1000
    dense_columns: 2
    columns:
      - name: C{1..3}
        cardinality: [100, 50, 10]
dense_features:
  - name: d{1..2}
    transform: log
sparse_features:
  - name: C{1..3}
tables:
  - name: C{1..3}
    num_embeddings: [100, 50, 10]
    embedding_dim: 8
model:
  bottom_mlp: [16, 8]
  top_mlp: [16]
)";
}

/// The same with one text in place of another, which must be there.
inline std::string changed(const std::string& from, const std::string& to) {
  std::string text = small_yaml();
  const std::size_t at = text.find(from);
  return at == std::string::npos ? "no '" + from + "' in small_yaml()"
                                 : text.replace(at, from.size(), to);
}

}  // namespace weft::spec
