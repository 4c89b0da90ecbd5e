#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weft/base/error.h"
#include "weft/jagged/keyed_jagged_tensor.h"

namespace weft {
namespace {

using Ids = std::vector<std::int64_t>;

KeyedJaggedTensor example() {
  // a: [1, 2] [] [3];  b: [] [4] [5, 6, 7]
  return from_lengths({"a", "b"}, 3, Ids{2, 0, 1, 0, 1, 3}, {1, 2, 3, 4, 5, 6, 7});
}

/// The message of the Error that `call` throws, with its code checked.
template <typename Call>
std::string message_of(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_names(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
  }
}

TEST(KeyedJaggedTensor, FeatureIsAViewOfItsBags) {
  const KeyedJaggedTensor kjt = example();
  const JaggedView b = kjt.feature(1);
  EXPECT_EQ(b.batch(), 3);
  EXPECT_EQ(b.num_values(), 4);
  EXPECT_EQ(b.length(0), 0);
  EXPECT_EQ(Ids(b.bag(2).begin(), b.bag(2).end()), (Ids{5, 6, 7}));
  EXPECT_EQ(b.weights, nullptr);
}

TEST(KeyedJaggedTensor, FeatureOutOfRangeIsNamed) {
  const KeyedJaggedTensor kjt = example();
  expect_names(message_of(ErrorCode::kUsage, [&] { (void)kjt.feature(2); }), {"2"});
}

TEST(KeyedJaggedTensor, ValidateNamesFeatureAndSample) {
  KeyedJaggedTensor kjt = example();
  kjt.offsets[5] = 9;
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }),
               {"'b'", "sample 2", "9", "7"});
}

TEST(KeyedJaggedTensor, ValidateNamesWrongSizes) {
  KeyedJaggedTensor kjt = example();
  kjt.offsets.pop_back();
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }), {"6 offsets", "7"});
  kjt = example();
  kjt.values.push_back(1);
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }), {"7", "8 values"});
  kjt = example();
  kjt.weights = {1.0F};
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }), {"1 weights", "7 values"});
  kjt = example();
  kjt.offsets[0] = 1;
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }), {"first offset is 1"});
  kjt = example();
  kjt.batch = -1;
  expect_names(message_of(ErrorCode::kData, [&] { kjt.validate(); }), {"-1"});
}

TEST(FromLengths, RefusesNegativeLengthsAndWrongTotals) {
  expect_names(message_of(ErrorCode::kData, [] { from_lengths({"a"}, 2, Ids{1, -1}, {1}); }),
               {"-1", "'a'", "sample 1"});
  expect_names(message_of(ErrorCode::kData, [] { from_lengths({"a"}, 2, Ids{1, 1}, {1}); }),
               {"2", "1 values"});
  expect_names(message_of(ErrorCode::kData, [] { from_lengths({"a"}, 2, Ids{1}, {1}); }),
               {"1 lengths", "2"});
}

TEST(Permute, RepeatsAndReorders) {
  const KeyedJaggedTensor out = permute(example(), Ids{1, 0, 1});
  EXPECT_EQ(out, from_lengths({"b", "a", "b"}, 3, Ids{0, 1, 3, 2, 0, 1, 0, 1, 3},
                              {4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7}));
  expect_names(message_of(ErrorCode::kUsage, [] { permute(example(), Ids{2}); }), {"2"});
}

TEST(Split, RefusesSizesThatDoNotSum) {
  expect_names(message_of(ErrorCode::kUsage, [] { split(example(), Ids{1, 2}); }), {"1, 2"});
  expect_names(message_of(ErrorCode::kUsage, [] { split(example(), Ids{3, -1}); }), {"3, -1"});
}

TEST(Concat, FillsMissingWeightsWithOne) {
  const KeyedJaggedTensor plain = from_lengths({"a"}, 1, Ids{2}, {1, 2});
  const KeyedJaggedTensor weighted = from_lengths({"b"}, 1, Ids{1}, {3}, {0.5F});
  const KeyedJaggedTensor* first[] = {&plain, &weighted};
  EXPECT_EQ(concat(first).weights, (std::vector<float>{1.0F, 1.0F, 0.5F}));
  const KeyedJaggedTensor* second[] = {&weighted, &plain};
  EXPECT_EQ(concat(second).weights, (std::vector<float>{0.5F, 1.0F, 1.0F}));
}

TEST(Concat, RefusesUnequalBatches) {
  const KeyedJaggedTensor one = from_lengths({"a"}, 1, Ids{0}, {});
  const KeyedJaggedTensor two = from_lengths({"b"}, 2, Ids{0, 0}, {});
  const KeyedJaggedTensor* inputs[] = {&one, &two};
  expect_names(message_of(ErrorCode::kUsage, [&] { concat(inputs); }), {"1", "2", "'b'"});
}

TEST(Concat, OfNothingIsEmpty) {
  const KeyedJaggedTensor out = concat({});
  EXPECT_EQ(out.num_features(), 0);
  out.validate();
}

TEST(SliceSamples, RefusesRangesOutsideTheBatch) {
  expect_names(message_of(ErrorCode::kUsage, [] { slice_samples(example(), 1, 4); }), {"1", "4"});
  expect_names(message_of(ErrorCode::kUsage, [] { slice_samples(example(), 2, 1); }), {"2", "1"});
}

KeyedJaggedTensor any_tensor(std::int64_t min_batch = 0) {
  const auto features = *rc::gen::inRange<std::int64_t>(0, 5);
  const auto batch = *rc::gen::inRange<std::int64_t>(min_batch, 7);
  std::vector<std::string> keys;
  for (std::int64_t f = 0; f < features; ++f) {
    keys.push_back("f" + std::to_string(f));
  }
  const auto lengths = *rc::gen::container<Ids>(static_cast<std::size_t>(features * batch),
                                                rc::gen::inRange<std::int64_t>(0, 4));
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  auto values =
      *rc::gen::container<Ids>(static_cast<std::size_t>(total), rc::gen::arbitrary<std::int64_t>());
  std::vector<float> weights;
  if (total > 0 && *rc::gen::arbitrary<bool>()) {
    for (std::int64_t i = 0; i < total; ++i) {
      weights.push_back(static_cast<float>(*rc::gen::inRange(0, 1000)));
    }
  }
  return from_lengths(std::move(keys), batch, lengths, std::move(values), std::move(weights));
}

RC_GTEST_PROP(JaggedProperty, PermutingBackGivesTheTensor, ()) {
  const KeyedJaggedTensor input = any_tensor();
  Ids order(input.keys.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
  }
  Ids back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  const KeyedJaggedTensor permuted = permute(input, order);
  permuted.validate();
  RC_ASSERT(permute(permuted, back) == input);
}

RC_GTEST_PROP(JaggedProperty, ConcatUndoesSplit, ()) {
  const KeyedJaggedTensor input = any_tensor();
  const auto first = *rc::gen::inRange<std::int64_t>(0, input.num_features() + 1);
  const auto second = *rc::gen::inRange<std::int64_t>(0, input.num_features() - first + 1);
  const Ids sizes = {first, second, input.num_features() - first - second};
  const std::vector<KeyedJaggedTensor> groups = split(input, sizes);
  std::vector<const KeyedJaggedTensor*> pointers;
  for (const KeyedJaggedTensor& group : groups) {
    group.validate();
    pointers.push_back(&group);
  }
  RC_ASSERT(concat(pointers) == input);
}

RC_GTEST_PROP(JaggedProperty, SlicesHoldEveryBagOnce, ()) {
  const KeyedJaggedTensor input = any_tensor(1);
  const auto cut = *rc::gen::inRange<std::int64_t>(0, input.batch + 1);
  const KeyedJaggedTensor left = slice_samples(input, 0, cut);
  const KeyedJaggedTensor right = slice_samples(input, cut, input.batch);
  left.validate();
  right.validate();
  for (std::int64_t f = 0; f < input.num_features(); ++f) {
    for (std::int64_t b = 0; b < input.batch; ++b) {
      const JaggedView whole = input.feature(f);
      const JaggedView half = b < cut ? left.feature(f) : right.feature(f);
      const auto expected = whole.bag(b);
      const auto got = half.bag(b < cut ? b : b - cut);
      RC_ASSERT(Ids(expected.begin(), expected.end()) == Ids(got.begin(), got.end()));
    }
  }
}

}  // namespace
}  // namespace weft
