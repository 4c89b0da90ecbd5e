#include "weft/embedding/initial_value.h"

#include <cmath>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/optim/sparse.h"

namespace weft::embedding {
namespace {

kernels::InitialRule rule_of(spec::TableInit init) {
  switch (init) {
    case spec::TableInit::kUniform:
      return kernels::InitialRule::kUniform;
    case spec::TableInit::kNormal:
      return kernels::InitialRule::kNormal;
    case spec::TableInit::kZero:
      return kernels::InitialRule::kZero;
  }
  fail(ErrorCode::kInternal, "initial values number {} do not exist", static_cast<int>(init));
}

float scale_of(const spec::Table& table) {
  return static_cast<float>(table.init_scale > 0.0
                                ? table.init_scale
                                : 1.0 / std::sqrt(static_cast<double>(table.num_embeddings)));
}

}  // namespace

kernels::InitialRows initial_rows(const spec::Table& table, std::uint64_t seed) {
  return {.table = {},
          .rows = {},
          .rule = rule_of(table.init),
          .key = random_key(seed, RandomPurpose::kInitialValue, table.name),
          .scale = scale_of(table),
          .state = optim::initial_state(table.optimizer),
          .state_floats = 0};
}

void initial_values(
    const spec::Table& table, std::uint64_t seed, std::int64_t row, Range cols, float* out) {
  kernels::InitialRows initial = initial_rows(table, seed);
  initial.table = {.weights = out,
                   .cols = cols.size(),
                   .dim = table.embedding_dim,
                   .first_row = row,
                   .first_col = cols.begin};
  initial.rows = {0, 1};
  Context ctx;  // `out` is on the host
  kernels::cpu::set_initial_rows(ctx, std::span(&initial, 1));
}

}  // namespace weft::embedding
