/// Binary cross-entropy with logits.
#pragma once

#include <cstdint>

#include "weft/tensor/view.h"

namespace weft::kernels {

/// exp(x) and ln(1 + x) for x in [0, 1] by plain double arithmetic, so that every machine has the
/// same bits, whatever its C library. Within 2 units in the last place.
double exact_exp(double x);
double exact_log1p(double x);

/// 1 / (1 + exp(-z)), without overflow.
double sigmoid(double z);

/// -y ln p - (1 - y) ln(1 - p) with p = sigmoid(z), as max(z, 0) - z y + ln(1 + exp(-|z|)):
/// without overflow, and exact for large |z|.
double bce_with_logits(double z, double y);

}  // namespace weft::kernels
