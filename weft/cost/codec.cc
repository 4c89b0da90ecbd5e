#include "weft/cost/codec.h"

#include <algorithm>
#include <cmath>

#include "weft/cost/rounding.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

using spec::CodecFormat;

constexpr std::int64_t kScale = 2;        // bf16
constexpr std::int64_t kFbgemmScale = 8;  // fp32, and fp32 of a bias or zero

std::int64_t group_bytes(CodecFormat format, std::int64_t cols) {
  switch (format) {
    case CodecFormat::kFp32:
      return 4 * cols;
    case CodecFormat::kFp16:
    case CodecFormat::kBf16:
      return 2 * cols;
    case CodecFormat::kFp8E4m3:
    case CodecFormat::kFp8E5m2:
    case CodecFormat::kInt8:
      return cols + kScale;
    case CodecFormat::kInt4:
      return (cols + 1) / 2 + kScale;
    case CodecFormat::kFbgemmFp8143:
    case CodecFormat::kFbgemmFp8152:
      return (cols + 3) / 4 * 4 + kFbgemmScale;
    case CodecFormat::kFbgemmInt8:
      return cols + kFbgemmScale;
  }
  return 0;
}

/// Either way.
double moved_s(const topology::Cluster& cluster, const CodecWork& work) {
  if (work.format == CodecFormat::kFp32 || work.cols == 0) {
    return 0.0;
  }
  const auto bytes =
      static_cast<double>(4 * work.cols + encoded_bytes(work.format, work.group, work.cols));
  return topology::copy_s(cluster, work.vectors * bytes);
}

}  // namespace

double encode_s(const topology::Cluster& cluster, const CodecWork& work) {
  const bool is_drawn =
      work.format != CodecFormat::kFp32 && work.rounding == spec::CodecRounding::kStochastic;
  return moved_s(cluster, work) + (is_drawn ? rounding_s(cluster, work.cols, work.vectors) : 0.0);
}

double decode_s(const topology::Cluster& cluster, const CodecWork& work) {
  return moved_s(cluster, work);
}

std::int64_t encoded_bytes(CodecFormat format, std::int64_t group, std::int64_t cols) {
  const std::int64_t step = spec::is_grouped(format) ? std::min(group, cols) : cols;
  const std::int64_t rest = cols % step;
  return cols / step * group_bytes(format, step) + (rest == 0 ? 0 : group_bytes(format, rest));
}

namespace {

constexpr double kBlock = 128.0;  // ids

/// Expected bits of the largest of `differences` between rows of which each is there with
/// probability `density`.
double bits_of_largest(double density, double differences) {
  if (density >= 1.0) {
    return 1.0;
  }
  const double rate = -std::log1p(-density);
  double bits = 0.0;
  for (int b = 0; b < 64; ++b) {
    const double most = std::ldexp(1.0, b) - 1.0;  // of b bits
    const double below = std::pow(-std::expm1(-rate * most), differences);
    bits += 1.0 - below;
    if (below > 1.0 - 1e-6) {
      break;
    }
  }
  return bits;
}

}  // namespace

double packed_id_bytes(std::span<const DrawnRows> drawn, double id_bytes) {
  double count = 0.0;
  for (const DrawnRows& rows : drawn) {
    count += rows.count;
  }
  if (count <= 0.0) {
    return 0.0;
  }
  if (count <= 1.0) {
    return count * (id_bytes + 1.0);
  }
  const double blocks = std::ceil(count / kBlock);
  const double differences = count - blocks;
  double bits = 0.0;
  for (const DrawnRows& rows : drawn) {
    if (rows.count > 0.0) {
      bits += rows.count / count * differences *
              bits_of_largest(std::min(1.0, rows.count / rows.rows), differences / blocks);
    }
  }
  constexpr double kFilled = 7.0 / 16.0;  // bytes that the last of a block is filled up with
  const double bytes = bits / 8.0;
  return blocks * (id_bytes + 1.0) +
         (blocks == 1.0 ? std::ceil(bytes - 1e-9) : bytes + blocks * kFilled);
}

}  // namespace weft::cost
