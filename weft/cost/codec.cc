#include "weft/cost/codec.h"

#include <algorithm>
#include <cmath>

#include "weft/cost/rounding.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

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
      work.format != CodecFormat::kFp32 && work.rounding == CodecRounding::kStochastic;
  return moved_s(cluster, work) +
         (is_drawn ? vector_rounding_s(cluster, work.cols, work.vectors) : 0.0);
}

double decode_s(const topology::Cluster& cluster, const CodecWork& work) {
  return moved_s(cluster, work);
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
