#include "weft/jagged/keyed_jagged_tensor.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft {
namespace {

/// Appends `count` bags of `input` that start at bag `first`.
void append_bags(const KeyedJaggedTensor& input,
                 std::int64_t first,
                 std::int64_t count,
                 KeyedJaggedTensor& out) {
  const std::int64_t begin = input.offsets[at(first)];
  const std::int64_t end = input.offsets[at(first + count)];
  const std::int64_t shift = out.offsets.back() - begin;
  for (std::int64_t bag = first + 1; bag <= first + count; ++bag) {
    out.offsets.push_back(input.offsets[at(bag)] + shift);
  }
  out.values.insert(out.values.end(), input.values.begin() + begin, input.values.begin() + end);
  if (!input.weights.empty()) {
    out.weights.insert(out.weights.end(), input.weights.begin() + begin,
                       input.weights.begin() + end);
  }
}

KeyedJaggedTensor empty_like(const KeyedJaggedTensor& input, std::int64_t batch) {
  KeyedJaggedTensor out;
  out.batch = batch;
  out.offsets.push_back(0);
  out.keys.reserve(input.keys.size());
  return out;
}

void check_range(std::int64_t feature, std::int64_t features) {
  if (feature < 0 || feature >= features) {
    fail(ErrorCode::kUsage, "feature {} of a KeyedJaggedTensor of {} features", feature, features);
  }
}

}  // namespace

JaggedView KeyedJaggedTensor::feature(std::int64_t f) const {
  check_range(f, num_features());
  JaggedView view;
  view.offsets = std::span<const std::int64_t>(offsets).subspan(at(f * batch), at(batch + 1));
  view.values = values.data();
  view.weights = weights.empty() ? nullptr : weights.data();
  return view;
}

void KeyedJaggedTensor::validate() const {
  if (batch < 0) {
    fail(ErrorCode::kData, "KeyedJaggedTensor: a batch of {} samples", batch);
  }
  const std::int64_t bags = num_features() * batch;
  if (offsets.size() != at(bags + 1)) {
    fail(ErrorCode::kData,
         "KeyedJaggedTensor: {} offsets for {} features of {} samples, which need {}",
         offsets.size(), num_features(), batch, bags + 1);
  }
  if (offsets.front() != 0) {
    fail(ErrorCode::kData, "KeyedJaggedTensor: the first offset is {} and should be 0",
         offsets.front());
  }
  for (std::int64_t bag = 0; bag < bags; ++bag) {
    if (offsets[at(bag)] > offsets[at(bag + 1)]) {
      fail(ErrorCode::kData,
           "KeyedJaggedTensor: offsets of feature '{}', sample {} descend from {} to {}",
           keys[at(bag / batch)], bag % batch, offsets[at(bag)], offsets[at(bag + 1)]);
    }
  }
  const auto ids = static_cast<std::int64_t>(values.size());
  if (offsets.back() != ids) {
    fail(ErrorCode::kData, "KeyedJaggedTensor: the last offset is {} but there are {} values",
         offsets.back(), ids);
  }
  if (!weights.empty() && weights.size() != values.size()) {
    fail(ErrorCode::kData, "KeyedJaggedTensor: {} weights for {} values", weights.size(), ids);
  }
}

KeyedJaggedTensor from_lengths(std::vector<std::string> keys,
                               std::int64_t batch,
                               std::span<const std::int64_t> lengths,
                               std::vector<std::int64_t> values,
                               std::vector<float> weights) {
  KeyedJaggedTensor out;
  out.keys = std::move(keys);
  out.batch = batch;
  const std::int64_t bags = out.num_features() * batch;
  if (lengths.size() != at(bags)) {
    fail(ErrorCode::kData, "from_lengths: {} lengths for {} features of {} samples, which need {}",
         lengths.size(), out.num_features(), batch, bags);
  }
  out.offsets.reserve(lengths.size() + 1);
  out.offsets.push_back(0);
  for (std::int64_t bag = 0; bag < bags; ++bag) {
    const std::int64_t length = lengths[at(bag)];
    if (length < 0) {
      fail(ErrorCode::kData, "from_lengths: length {} of feature '{}', sample {}", length,
           out.keys[at(bag / batch)], bag % batch);
    }
    out.offsets.push_back(out.offsets.back() + length);
  }
  out.values = std::move(values);
  out.weights = std::move(weights);
  out.validate();
  return out;
}

KeyedJaggedTensor permute(const KeyedJaggedTensor& input, std::span<const std::int64_t> order) {
  KeyedJaggedTensor out = empty_like(input, input.batch);
  for (const std::int64_t f : order) {
    check_range(f, input.num_features());
    out.keys.push_back(input.keys[at(f)]);
    append_bags(input, f * input.batch, input.batch, out);
  }
  return out;
}

std::vector<KeyedJaggedTensor> split(const KeyedJaggedTensor& input,
                                     std::span<const std::int64_t> sizes) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total != input.num_features() ||
      std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) {
    fail(ErrorCode::kUsage, "split: groups of [{}] features do not sum to the tensor's {}",
         fmt::join(sizes, ", "), input.num_features());
  }
  std::vector<KeyedJaggedTensor> out;
  out.reserve(sizes.size());
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    KeyedJaggedTensor& group = out.emplace_back(empty_like(input, input.batch));
    group.keys.assign(input.keys.begin() + first, input.keys.begin() + first + size);
    append_bags(input, first * input.batch, size * input.batch, group);
    first += size;
  }
  return out;
}

KeyedJaggedTensor concat(std::span<const KeyedJaggedTensor* const> inputs) {
  KeyedJaggedTensor out;
  out.offsets.push_back(0);
  if (inputs.empty()) {
    return out;
  }
  out.batch = inputs.front()->batch;
  const bool weighted = std::any_of(inputs.begin(), inputs.end(),
                                    [](const KeyedJaggedTensor* t) { return !t->weights.empty(); });
  for (const KeyedJaggedTensor* input : inputs) {
    if (input->batch != out.batch) {
      fail(ErrorCode::kUsage, "concat: batches of {} and {} samples (of feature '{}')", out.batch,
           input->batch, input->keys.empty() ? "" : input->keys.front());
    }
    out.keys.insert(out.keys.end(), input->keys.begin(), input->keys.end());
    append_bags(*input, 0, input->num_features() * out.batch, out);
    if (weighted) {
      out.weights.resize(out.values.size(), 1.0F);
    }
  }
  return out;
}

KeyedJaggedTensor slice_samples(const KeyedJaggedTensor& input,
                                std::int64_t begin,
                                std::int64_t end) {
  if (begin < 0 || begin > end || end > input.batch) {
    fail(ErrorCode::kUsage, "slice_samples: samples [{}, {}) of a batch of {}", begin, end,
         input.batch);
  }
  KeyedJaggedTensor out = empty_like(input, end - begin);
  out.keys = input.keys;
  for (std::int64_t f = 0; f < input.num_features(); ++f) {
    append_bags(input, f * input.batch + begin, end - begin, out);
  }
  return out;
}

}  // namespace weft
