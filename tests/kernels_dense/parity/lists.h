// All lists of parity cases of the dense operations: what a backend must pass on a device of its
// kind. Each compares an operation with its plain loops, at odd shapes and strides, in fp32 and in
// bf16; headers of the lists state the bounds.
#pragma once

#include <string>
#include <vector>

#include "tests/kernels_dense/parity/binary_sums.h"
#include "tests/kernels_dense/parity/cross.h"
#include "tests/kernels_dense/parity/dense_update.h"
#include "tests/kernels_dense/parity/elementwise.h"
#include "tests/kernels_dense/parity/interaction.h"
#include "tests/kernels_dense/parity/linear.h"
#include "tests/kernels_dense/parity/loss.h"
#include "tests/kernels_dense/parity/sequence.h"
#include "tests/kernels_dense/parity/weight_gradient.h"

namespace weft::kernels::parity {

struct List {
  std::string name;
  void (*expect)(Device&);
};

inline std::vector<List> all_lists() {
  return {{"Elementwise", expect_elementwise},
          {"Concatenate", expect_concatenate},
          {"Linear", expect_linear},
          {"WeightGradient", expect_weight_gradient},
          {"Cross", expect_cross},
          {"Interactions", expect_interactions},
          {"Sequences", expect_sequences},
          {"Loss", expect_loss},
          {"FirstBadSample", expect_first_bad_sample},
          {"BinarySums", expect_binary_sums},
          {"DenseUpdate", expect_dense_update}};
}

}  // namespace weft::kernels::parity
