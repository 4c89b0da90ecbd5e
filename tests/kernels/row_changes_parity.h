// The parity lists of encode_row_changes, average_row_changes, add_row_means and take_row_values:
// every backend passes them (tests/kernels/parity.h).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/row_changes.h"

namespace weft::kernels::test {

/// The shape of a case of changes.
struct ChangesShape {
  DType dtype = DType::kFloat32;
  SparseOptimizerKind rule = SparseOptimizerKind::kAdam;
  std::int64_t cols = 1;
  std::int64_t rows = 1;
  Codec codec;
  bool listed = false;     ///< rows of a list, whose slots are not their numbers
  bool copied = false;     ///< and whose copies are not at their numbers
  bool keeps_lost = true;  ///< with feedback
};

/// A table, its last common values, what its rows have lost, and codes.
class ChangesCase {
 public:
  ChangesCase(Random& random, const ChangesShape& shape)
      : shape_(shape),
        table_(random, shape.rows, shape.cols, shape.dtype, shape.rule),
        state_floats_(state_floats(shape.rule, shape.cols)),
        copies_((set_extremes(), table_)) {
    add_vectors();
    const std::int64_t numbers = shape.cols + state_floats_;
    last_weights_ = Copied(last_weights(random));
    last_state_ = Copied(near(random, shape.rows * state_floats_));
    lost_ = Copied(near(random, shape.rows * numbers));
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      rows_.push_back(static_cast<std::int32_t>(row));
      slots_.push_back(static_cast<std::int32_t>(shape.rows - 1 - row));
      copied_to_.push_back(static_cast<std::int32_t>((row + shape.rows / 2) % shape.rows));
    }
    for (std::int64_t place = 1; place < shape.rows; place += 2) {
      places_.push_back(static_cast<std::int32_t>(place));
    }
    flags_.resize(static_cast<std::size_t>(shape.rows));
    plain_flags_ = flags_;
    codes_ = Copied(make_codes(random));
    for (int m = 0; m < 3; ++m) {
      arrived_.emplace_back(make_codes(random));
    }
  }

  enum class What { kEncode, kAverage, kAdd, kTake };

  /// Returns how many numbers stayed as they were.
  std::int64_t expect_parity(Context& ctx, What what) {
    RowChanges there = job(copies_.place(ctx));
    there.last_weights = last_weights_.place(ctx);
    there.last_state = last_state_.place(ctx);
    there.lost = shape_.keeps_lost ? lost_.place(ctx) : nullptr;
    there.codes = codes_.place(ctx);
    there.flags = shape_.listed ? flags_.data() : nullptr;
    there.clips = &clips_;
    RowChanges here = job(copies_.host());
    here.last_weights = last_weights_.host();
    here.last_state = last_state_.host();
    here.lost = shape_.keeps_lost ? lost_.host() : nullptr;
    here.codes = codes_.host();
    here.flags = shape_.listed ? plain_flags_.data() : nullptr;
    here.clips = &plain_clips_;
    std::int64_t kept = 0;
    std::int64_t plain_kept = 0;
    if (what == What::kEncode) {
      encode_row_changes(ctx, std::span(&there, 1));
      reference::encode_row_changes(ctx, std::span(&here, 1));
    } else if (what == What::kAdd) {
      add_row_means(ctx, std::span(&there, 1));
      reference::add_row_means(ctx, std::span(&here, 1));
    } else if (what == What::kTake) {
      take_row_values(ctx, std::span(&there, 1));
      reference::take_row_values(ctx, std::span(&here, 1));
    } else {
      const std::vector<const std::byte*> from = {arrived_[0].place(ctx), nullptr,
                                                  arrived_[2].place(ctx)};
      const ChangeAverage tested{.changes = there, .arrived = from, .kept = &kept};
      average_row_changes(ctx, std::span(&tested, 1));
      const std::vector<const std::byte*> plain_from = {arrived_[0].host(), nullptr,
                                                        arrived_[2].host()};
      const ChangeAverage plain{.changes = here, .arrived = plain_from, .kept = &plain_kept};
      reference::average_row_changes(ctx, std::span(&plain, 1));
    }
    EXPECT_EQ(kept, plain_kept) << name();
    EXPECT_EQ(clips_, plain_clips_) << name();
    EXPECT_EQ(flags_, plain_flags_) << name();
    EXPECT_TRUE(copies_.same_bits(ctx)) << name();
    EXPECT_TRUE(last_weights_.same_bits(ctx)) << name();
    EXPECT_TRUE(last_state_.same_bits(ctx)) << name();
    EXPECT_TRUE(!shape_.keeps_lost || lost_.same_bits(ctx)) << name();
    EXPECT_TRUE(codes_.same_bits(ctx)) << name();
    return kept;
  }

 private:
  [[nodiscard]] std::string name() const {
    return std::string(to_string(shape_.dtype)) + ", " + std::to_string(shape_.cols) +
           " columns, " + std::to_string(shape_.rows) + " rows, " +
           std::string(to_string(shape_.codec.format)) + (shape_.listed ? ", listed" : "") +
           (shape_.copied ? ", copies elsewhere" : "") + (shape_.keeps_lost ? "" : ", no feedback");
  }

  /// Numbers to which a mean cannot be added.
  void set_extremes() {
    for (std::int64_t row = 0; row < table_.rows; row += 5) {
      const float largest = shape_.dtype == DType::kFloat16 ? 65504.0F : 0x1.FEp127F;
      table_.set(row, row % shape_.cols, row % 2 == 0 ? largest : -largest);
    }
  }

  void add_vectors() {
    vectors_.push_back({.part = RowCopy::Part::kWeights, .cols = shape_.cols});
    const std::int64_t wide = std::min(state_floats_, shape_.cols);
    for (std::int64_t first = 0; first < state_floats_; first += wide) {
      vectors_.push_back({.part = RowCopy::Part::kState,
                          .squares = first + wide == state_floats_,
                          .first = first,
                          .cols = std::min(wide, state_floats_ - first),
                          .lost = shape_.cols + first});
    }
  }

  std::vector<float> near(Random& random, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::generate(values.begin(), values.end(), [&] { return number(random) * 0.25F; });
    return values;
  }

  /// The values differ from the rows'; some are equal, and some lie at the end of the range.
  std::vector<std::byte> last_weights(Random& random) {
    TableCase same(random, table_.rows, shape_.cols,
                   shape_.dtype == DType::kSplitBFloat16 ? DType::kFloat32 : shape_.dtype,
                   SparseOptimizerKind::kSgd);
    for (std::int64_t row = 0; row < table_.rows; row += 3) {
      same.set(row, 0, shape_.dtype == DType::kFloat16 ? 65504.0F : 0x1.FEp127F);
    }
    return same.weights;
  }

  /// The changes have all sizes, up to the largest numbers.
  std::vector<std::byte> make_codes(Random& random) {
    std::vector<std::byte> all;
    for (const ChangeVector& vector : vectors_) {
      const std::int64_t count = choice().count;
      std::vector<float> changes = near(random, count * vector.cols);
      for (std::size_t i = 0; i < changes.size(); i += 3) {
        changes[i] *= i % 2 == 0 ? 0x1p127F : -0x1p10F;
      }
      const std::size_t begin = all.size();
      const std::int64_t bytes = count * encoded_bytes(shape_.codec, vector.cols);
      all.resize(begin + static_cast<std::size_t>(bytes));
      const EncodeJob encoding{.codec = shape_.codec,
                               .vectors = changes.data(),
                               .stride = vector.cols,
                               .count = count,
                               .cols = vector.cols,
                               .to = all.data() + begin};
      Context ctx;
      reference::encode(ctx, std::span(&encoding, 1));
    }
    return all;
  }

  [[nodiscard]] RowChoice choice() const {
    if (shape_.listed) {
      return {.count = std::ssize(places_),
              .places = places_.data(),
              .rows = rows_.data(),
              .slots = slots_.data(),
              .copies = shape_.copied ? copied_to_.data() : nullptr};
    }
    return {.count = (shape_.rows + 1) / 2, .first = 0, .step = 2};
  }

  [[nodiscard]] RowChanges job(RowTable table) const {
    table.first_row = 70;
    table.row_step = 3;
    table.first_col = 16;
    return {.codec = shape_.codec,
            .table = table,
            .rows = choice(),
            .vectors = vectors_,
            .state_floats = state_floats_,
            .lost_floats = shape_.cols + state_floats_,
            .draws = {.key = 0x123456789ABCDEFULL,
                      .rule = shape_.listed ? DrawRule::kWord : kNewestDrawRule},
            .step = 6};
  }

  ChangesShape shape_;
  TableCase table_;
  std::int64_t state_floats_;
  TableCopies copies_;
  std::vector<ChangeVector> vectors_;
  std::vector<std::int32_t> rows_, slots_, copied_to_, places_;
  std::vector<std::uint8_t> flags_, plain_flags_;
  Copied<std::byte> last_weights_, codes_;
  Copied<float> last_state_, lost_;
  std::vector<Copied<std::byte>> arrived_;
  CodecClips clips_, plain_clips_;
};

/// Every row type, layout and format, odd widths, all rows and listed ones, with feedback and
/// without; more rows than a task has, and rows longer than what a task has in hand.
inline void expect_row_changes_parity(Device& device, ChangesCase::What what) {
  Random random(31);
  std::int64_t kept = 0;
  const auto run = [&](const ChangesShape& shape) {
    ChangesCase one(random, shape);
    run_on(device, [&](Context& ctx) { kept += one.expect_parity(ctx, what); });
  };
  for (const DType dtype : kRowTypes) {
    for (const SparseOptimizerKind rule :
         {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
          SparseOptimizerKind::kAdam}) {
      for (const CodecFormat format :
           {CodecFormat::kFp16, CodecFormat::kBf16, CodecFormat::kFp8E4m3, CodecFormat::kInt4}) {
        for (const std::int64_t cols : {1, 17, 130}) {
          for (const bool listed : {false, true}) {
            run({.dtype = dtype,
                 .rule = rule,
                 .cols = cols,
                 .rows = 41,
                 .codec = {.format = format, .group = 32},
                 .listed = listed,
                 .copied = listed && cols != 1,
                 .keeps_lost = cols != 17});
          }
        }
      }
    }
  }
  run({.cols = 3, .rows = 2500, .codec = {.format = CodecFormat::kInt8}, .listed = true});
  run({.cols = 4100, .rows = 3, .codec = {.format = CodecFormat::kInt8}});
  EXPECT_EQ(kept > 0, what == ChangesCase::What::kAverage);
}

inline void expect_encode_row_changes_parity(Device& device) {
  expect_row_changes_parity(device, ChangesCase::What::kEncode);
}

inline void expect_average_row_changes_parity(Device& device) {
  expect_row_changes_parity(device, ChangesCase::What::kAverage);
}

inline void expect_add_row_means_parity(Device& device) {
  expect_row_changes_parity(device, ChangesCase::What::kAdd);
}

inline void expect_take_row_values_parity(Device& device) {
  expect_row_changes_parity(device, ChangesCase::What::kTake);
}

}  // namespace weft::kernels::test
