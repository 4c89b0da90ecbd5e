// The parity lists of encode_slices and sum_terms, what an ordered all-reduce does with slices:
// every backend passes them (tests/kernels/parity.h).
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/slice_codes.h"
#include "weft/kernels/term_sums.h"

namespace weft::kernels::test {

inline std::vector<float> numbers(Random& random, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = below(random, 50) == 0 ? 0x1p125F * number(random) : number(random);
  }
  return values;
}

/// A slice, with a residual or without, whose decoded form is wanted or not.
class SliceCase {
 public:
  SliceCase(Random& random, const Codec& codec, std::int64_t count, bool residual, bool decoded)
      : codec_(codec),
        count_(count),
        has_residual_(residual),
        wants_decoded_(decoded),
        values_(numbers(random, count)),
        residual_(numbers(random, count)),
        decoded_(std::vector<float>(at(count), -7.0F)),
        codes_(std::vector<std::byte>(at(encoded_bytes(codec, count)) + 1, std::byte{0xEE})) {}

  SliceEncode place(Context& ctx) {
    return {.codec = codec_,
            .values = values_.place(ctx),
            .residual = has_residual_ ? residual_.place(ctx) : nullptr,
            .count = count_,
            .to = codes_.place(ctx),
            .decoded = decoded_place(decoded_.place(ctx)),
            .clips = &clips_};
  }

  SliceEncode host() {
    return {.codec = codec_,
            .values = values_.host(),
            .residual = has_residual_ ? residual_.host() : nullptr,
            .count = count_,
            .to = codes_.host(),
            .decoded = decoded_place(decoded_.host()),
            .clips = &plain_clips_};
  }

  void expect_same(Context& ctx) {
    const std::string name = std::string(to_string(codec_.format)) + " in groups of " +
                             std::to_string(codec_.group) + ", " + std::to_string(count_);
    EXPECT_TRUE(values_.same_bits(ctx)) << name;
    EXPECT_TRUE(codes_.same_bits(ctx)) << name;
    EXPECT_TRUE(decoded_.same_bits(ctx)) << name;
    EXPECT_EQ(clips_, plain_clips_) << name;
    if (count_ == 0) {
      return;
    }
    std::vector<DecodeJob> jobs;
    Copied back(std::vector<float>(at(count_)));
    add_slice_decodes(codec_, codes_.placed(), count_, back.place(ctx), jobs);
    decode(ctx, jobs);
    const DecodeJob plain{.codec = codec_,
                          .from = codes_.host(),
                          .vectors = back.host(),
                          .stride = count_,
                          .count = 1,
                          .cols = count_};
    reference::decode(ctx, std::span(&plain, 1));
    EXPECT_TRUE(back.same_bits(ctx)) << name << ", decoded in parts";
  }

 private:
  [[nodiscard]] float* decoded_place(float* at) const { return wants_decoded_ ? at : nullptr; }

  Codec codec_;
  std::int64_t count_;
  bool has_residual_;
  bool wants_decoded_;
  Copied<float> values_, residual_, decoded_;
  Copied<std::byte> codes_;
  CodecClips clips_, plain_clips_;
};

/// Formats, groups that divide a block, that do not, and that are longer; slices of no block to
/// several tasks.
inline void expect_encode_slices_parity(Device& device) {
  Random random(17);
  for (const CodecFormat format : {CodecFormat::kFp16, CodecFormat::kBf16, CodecFormat::kFp8E4m3,
                                   CodecFormat::kFp8E5m2, CodecFormat::kInt8, CodecFormat::kInt4}) {
    for (const std::int64_t group : {17, 128, 5000}) {
      run_on(device, [&](Context& ctx) {
        std::deque<SliceCase> cases;
        std::vector<SliceEncode> there;
        std::vector<SliceEncode> here;
        for (const std::int64_t count : {0, 1, 100, 4096, 4100, 70'001}) {
          for (const bool residual : {false, true}) {
            for (const bool decoded : {false, true}) {
              SliceCase& one = cases.emplace_back(random, Codec{.format = format, .group = group},
                                                  count, residual, decoded);
              there.push_back(one.place(ctx));
              here.push_back(one.host());
            }
          }
        }
        encode_slices(ctx, there);
        reference::encode_slices(ctx, here);
        for (SliceCase& one : cases) {
          one.expect_same(ctx);
        }
      });
    }
  }
}

/// The additions of a tree over terms, some of which are absent.
inline TermSum tree_over(std::int64_t terms, std::uint64_t absent, std::vector<Addition>& to) {
  std::array<SumOperand, 64> held;
  const auto leaf = [&](Range node, int depth) {
    const bool there = node.size() == 1 && (absent >> node.begin & 1U) == 0;
    if (there) {
      held[at(depth)] = {.term = node.begin};
    }
    return there;
  };
  const auto join = [&](int depth) {
    to.push_back({.sum = depth, .a = held[at(depth)], .b = held[at(depth) + 1]});
    held[at(depth)] = {.term = -1, .sum = depth};
  };
  sum_tree(Range{0, terms}, 0, leaf, join);
  return {.additions = to, .only = to.empty() ? held[0] : SumOperand{}};
}

/// One to nine terms, absent ones, sums of no block to several, and one into its own first term.
inline void expect_sum_terms_parity(Device& device) {
  Random random(23);
  for (const std::int64_t count : {1, 4096, 9000}) {
    for (const std::int64_t terms : {1, 2, 5, 9}) {
      for (const std::uint64_t absent : {0U, 1U, 0b10110U, 0x1FFU}) {
        run_on(device, [&](Context& ctx) {
          std::deque<Copied<float>> rows;
          std::vector<const float*> there;
          std::vector<const float*> here;
          for (std::int64_t t = 0; t < terms; ++t) {
            rows.emplace_back(numbers(random, count));
            there.push_back(rows.back().place(ctx));
            here.push_back(rows.back().host());
          }
          Copied out(std::vector<float>(at(count), -7.0F));
          Copied scratch(std::vector<float>(at(8 * count)));
          std::vector<Addition> additions;
          TermSum sum = tree_over(terms, absent, additions);
          sum.stride = sum.count = count;
          const bool in_place = absent == 0 && count != 1;
          TermSum tested = sum;
          tested.terms = there;
          tested.scratch = scratch.place(ctx);
          tested.out = in_place ? rows[0].placed() : out.place(ctx);
          sum.terms = here;
          sum.scratch = scratch.host();
          sum.out = in_place ? rows[0].host() : out.host();
          sum_terms(ctx, std::span(&tested, 1));
          reference::sum_terms(ctx, std::span(&sum, 1));
          EXPECT_TRUE((in_place ? rows[0] : out).same_bits(ctx))
              << terms << " terms of " << count << ", absent " << absent;
        });
      }
    }
  }
}

}  // namespace weft::kernels::test
