#include "bench/gemm_probe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "bench/timing.h"
#include "weft/kernels/cpu/panel_product.h"
#include "weft/kernels/target.h"
#include "weft/layout/products.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

/// One thread's product and its operands.
class Product {
 public:
  Product() = default;
  virtual ~Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  virtual void run(std::int64_t times) = 0;
};

/// Word i of a matrix, a value in [0.5, 1): neither zero nor denormal, which would be another
/// speed.
std::uint32_t word_of(std::size_t i) {
  return 0x3f000000U | static_cast<std::uint32_t>(i * 2654435761U >> 9);
}

/// oneDNN's product.
class OnednnProduct final : public Product {
 public:
  OnednnProduct(const GemmShape& shape, const dnnl::engine& engine) : stream_(engine) {
    using dnnl::memory;
    constexpr auto kAny = memory::format_tag::any;
    const dnnl::matmul::primitive_desc chosen(
        dnnl::matmul::desc({{shape.m, shape.k}, type_of(shape.in), kAny},
                           {{shape.k, shape.n}, type_of(shape.in), kAny},
                           {{shape.m, shape.n}, type_of(shape.out), kAny}),
        engine);
    primitive_ = dnnl::matmul(chosen);
    add(DNNL_ARG_SRC, chosen.src_desc(), engine, shape.in);
    add(DNNL_ARG_WEIGHTS, chosen.weights_desc(), engine, shape.in);
    add(DNNL_ARG_DST, chosen.dst_desc(), engine, shape.out);
  }

  void run(std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) {
      primitive_.execute(stream_, arguments_);
    }
    stream_.wait();
  }

 private:
  void add(int argument, const dnnl::memory::desc& desc, const dnnl::engine& engine, DType dtype) {
    dnnl::memory memory(desc, engine);
    const std::size_t values = desc.get_size() / static_cast<std::size_t>(size_of(dtype));
    for (std::size_t i = 0; i < values; ++i) {
      const std::uint32_t word = word_of(i);
      if (dtype == DType::kFloat32) {
        static_cast<std::uint32_t*>(memory.get_data_handle())[i] = word;
      } else {
        static_cast<std::uint16_t*>(memory.get_data_handle())[i] =
            static_cast<std::uint16_t>(word >> 16);
      }
    }
    arguments_.emplace(argument, memory);
  }

  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// Weft's own product, of a right operand in strips; in fp32.
class StripProduct final : public Product {
 public:
  explicit StripProduct(const GemmShape& shape)
      : product_{.m = shape.m, .n = shape.n, .k = shape.k} {
    const std::int64_t rows = layout::round_up(shape.k, layout::kFp32RowUnit);
    a_ = fill(memory_[0], shape.m * shape.k);
    b_ = fill(memory_[1], rows * layout::round_up(shape.n, layout::kPanel));
    out_ = fill(memory_[2], shape.m * shape.n);
  }

  void run(std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) {
      kernels::multiply_panels(product_, a_, b_, out_);
    }
  }

 private:
  static float* fill(HostBlock& memory, std::int64_t count) {
    auto* const values = memory.at_least_of<float>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t word = word_of(static_cast<std::size_t>(i));
      std::memcpy(values + i, &word, sizeof word);
    }
    return values;
  }

  kernels::PanelProduct product_;
  HostBlock memory_[3];
  float* a_ = nullptr;
  float* b_ = nullptr;
  float* out_ = nullptr;
};

/// Makes what Weft multiplies with on the target in force.
std::unique_ptr<Product> make_product(const GemmShape& shape, const dnnl::engine& engine) {
  if (kernels::current_target() == kernels::Target::kAvx2) {
    return std::make_unique<StripProduct>(shape);
  }
  return std::make_unique<OnednnProduct>(shape, engine);
}

/// The types in which the target in force multiplies `shape`.
GemmShape as_multiplied(GemmShape shape) {
  if (!kernels::has_bf16_products(kernels::current_target())) {
    shape.in = shape.out = DType::kFloat32;
  }
  return shape;
}

/// Passes of some milliseconds, so that waking the threads is not what is measured; of tiny
/// products the calls take the time.
std::int64_t products_per_pass(const GemmShape& shape) {
  constexpr double kFlopsPerPass = 5e8;
  constexpr std::int64_t kMost = 5000;
  return std::clamp<std::int64_t>(std::llround(kFlopsPerPass / shape.flops()), 1, kMost);
}

}  // namespace

void use_one_thread() {
  auto* const set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) {
    set(1);
  }
}

double gemm_flops_per_s(ThreadPool& pool, const GemmShape& shape, double budget_s) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const std::int64_t threads = pool.threads();
  std::vector<std::unique_ptr<Product>> products(static_cast<std::size_t>(threads));
  use_one_thread();  // oneDNN chooses a primitive for as many threads as the maker has
  for (auto& product : products) {
    product = make_product(as_multiplied(shape), engine);
  }
  const std::int64_t times = products_per_pass(shape);
  const double time = median_pass_s(budget_s, [&] {
    pool.parallel_for(threads, [&](std::int64_t thread) {
      use_one_thread();
      products[static_cast<std::size_t>(thread)]->run(times);
    });
  });
  return shape.flops() * static_cast<double>(times * threads) / time;
}

}  // namespace weft::bench
