// Encoding and decoding vectors, and packing and unpacking ascending ids, that lie in memory,
// against copying as many bytes: what is read plus what is written.
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "bench/kernel_main.h"
#include "bench/limits.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/packed_ids.h"
#include "weft/kernels/tasks.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kVectorBytes = std::int64_t{64} << 20;

enum class Way { kEncode, kDecode };

/// Vectors of `cols` columns, and their encoded bytes.
struct Vectors {
  Vectors(const kernels::Codec& codec_in, std::int64_t cols_in)
      : codec(codec_in),
        cols(cols_in),
        count(bytes_of_run(kVectorBytes) / (4 * cols_in)),
        bytes(kernels::encoded_bytes(codec_in, cols_in)),
        device(make_device({.threads = 1})),
        floats(*device, 4 * count * cols),
        encoded(*device, count * bytes),
        numbers(static_cast<std::size_t>(count)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < count * cols; ++i) {
      floats.as<float>()[i] = normal(random);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      numbers[static_cast<std::size_t>(i)] = i;
    }
    run(Way::kEncode);
  }

  void run(Way way) const {
    Context ctx{.device = device.get(), .pool = &device->pool()};
    if (way == Way::kEncode) {
      const kernels::EncodeJob job{.codec = codec,
                                   .vectors = floats.as<float>(),
                                   .stride = cols,
                                   .count = count,
                                   .cols = cols,
                                   .to = encoded.as<std::byte>(),
                                   .draws = {.key = 1, .step = 1, .numbers = numbers.data()}};
      kernels::encode(ctx, std::span(&job, 1));
    } else {
      const kernels::DecodeJob job{.codec = codec,
                                   .from = encoded.as<std::byte>(),
                                   .vectors = floats.as<float>(),
                                   .stride = cols,
                                   .count = count,
                                   .cols = cols};
      kernels::decode(ctx, std::span(&job, 1));
    }
  }

  kernels::Codec codec;
  std::int64_t cols;
  std::int64_t count;
  std::int64_t bytes;
  std::unique_ptr<Device> device;
  Buffer floats, encoded;
  std::vector<std::int64_t> numbers;
};

void codec(benchmark::State& state, Way way, CodecFormat format, CodecRounding rounding) {
  const Vectors vectors({format, 128, rounding}, state.range(0));
  Limits limits(*vectors.device, {.budget_s = probe_seconds(), .align = {}});
  const std::int64_t moved = vectors.count * (4 * vectors.cols + vectors.bytes);
  const double limit = limits.copy_bytes_per_s(moved);
  for (auto _ : state) {
    vectors.run(way);
  }
  report_rate(state, {.work = static_cast<double>(moved) / 1e9,
                      .unit = "GB/s",
                      .limit_name = "copy",
                      .limit = limit / 1e9});
}

/// Ascending ids whose differences are 1 to 2 `gap` - 1, as int64 and packed.
struct Ids {
  explicit Ids(std::int64_t gap)
      : ids(static_cast<std::size_t>(bytes_of_run(kVectorBytes) / 8)),
        packed(static_cast<std::size_t>(
            kernels::most_packed_bytes(static_cast<std::int64_t>(ids.size()), 8) +
            kernels::kPackedIdSlack)) {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> difference(1, 2 * gap - 1);
    std::int64_t last = 0;
    for (std::int64_t& id : ids) {
      id = last += difference(random);
    }
    bytes = kernels::pack_ids(ids, 8, packed.data());
  }

  std::vector<std::int64_t> ids;
  std::vector<std::byte> packed;
  std::int64_t bytes = 0;
};

void packed_ids(benchmark::State& state, Way way) {
  Ids list(state.range(0));
  const auto device = make_device({.threads = 1});
  Limits limits(*device, {.budget_s = probe_seconds(), .align = {}});
  const auto count = static_cast<std::int64_t>(list.ids.size());
  const std::int64_t moved = 8 * count + list.bytes;
  const double limit = limits.copy_bytes_per_s(moved);
  for (auto _ : state) {
    const std::int64_t bytes =
        way == Way::kEncode ? kernels::pack_ids(list.ids, 8, list.packed.data())
                            : kernels::unpack_ids(list.packed, 8, list.ids.back() + 1, list.ids);
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["bits_per_id"] =
      8.0 * static_cast<double>(list.bytes) / static_cast<double>(count);
  report_rate(state, {.work = static_cast<double>(moved) / 1e9,
                      .unit = "GB/s",
                      .limit_name = "copy",
                      .limit = limit / 1e9});
}

void register_all() {
  for (const Way way : {Way::kEncode, Way::kDecode}) {
    benchmark::RegisterBenchmark(way == Way::kEncode ? "pack_ids" : "unpack_ids", packed_ids, way)
        ->ArgName("gap")
        ->Arg(2)
        ->Arg(50)
        ->Arg(5000)
        ->UseRealTime();
  }
  for (int i = 0; i < kNumCodecFormats; ++i) {
    const auto format = static_cast<CodecFormat>(i);
    const std::string name(to_string(format));
    const auto add = [&](const std::string& what, Way way, CodecRounding rounding) {
      benchmark::RegisterBenchmark((what + "/" + name).c_str(), codec, way, format, rounding)
          ->ArgName("dim")
          ->Arg(32)
          ->Arg(128)
          ->UseRealTime();
    };
    add("encode", Way::kEncode, CodecRounding::kNearest);
    add("decode", Way::kDecode, CodecRounding::kNearest);
    add("encode_stochastic", Way::kEncode, CodecRounding::kStochastic);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::register_all();
  return weft::bench::run_kernels("codec", argc, argv);
}
