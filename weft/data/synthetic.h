/// A generated click log with a planted teacher, so that the best possible NE is known.
///
/// Sample i is a pure function of (seed, i) and of the columns' descriptions: any number of ranks,
/// in any order, see the same log, nothing is stored, and adding a column changes no other.
/// Training samples are i = 0 .. samples - 1, evaluation samples the eval_samples after them.
///
/// Columns
///   categorical   as configured. A rank is drawn from a Zipf law (data/zipf.h) and scattered over
///                 ids 0 .. cardinality - 1 by a keyed bijection. The length of a bag is uniform in
///                 [min_length, max_length]; with probability `missing` it is empty. With
///                 probability `repeat` a bag is that of the sample's visitor, a function of
///                 (seed, visitor, column); visitors follow a Zipf law of exponent 0.6. Ids of a
///                 `weighted` column have weights, uniform in [0.5, 1.5), which the teacher uses.
///   dense         d1, d2, ..: counts floor(exp(1 + normal)), one in twenty missing (NaN). Made
///                 for the transform `log`.
///   label         "label": Bernoulli(p), p = sigmoid(bias + signal x standardised teacher score).
///
/// The teacher's score is described in data/teacher.h. It is standardised, and the bias set so that
/// the mean of p is base_rate, over the first 32768 samples of the stream; so `signal` is the
/// standard deviation of the logit, and a larger one means a lower best NE.
///
/// Cost: about a microsecond per sample of 26 one-id columns and 13 dense ones.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/data/source.h"
#include "weft/spec/config.h"

namespace weft::data {

/// A random-access source of the split's samples, at most data.max_samples (kTrain) or
/// data.max_eval_samples (kEval) of them. bayes_ne() is
///     sum of H(p_i) / (n H(mean p)),   H(p) = -p ln p - (1 - p) ln(1 - p),
/// over the split's samples (over the first 2^20 where there are more), computed when first asked
/// for. Throws Error(kConfig) for a column that cannot be generated.
std::unique_ptr<Source> open_synthetic(const spec::DataConfig& config,
                                       std::uint64_t seed,
                                       Split split);

}  // namespace weft::data
