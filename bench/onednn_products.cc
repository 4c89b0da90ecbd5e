#include <cstddef>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "bench/gemm_probe.h"
#include "bench/product_library.h"

namespace weft::bench {
namespace {

using dnnl::memory;

/// A matrix as it lies, row by row, or its transposed.
memory::desc plain(std::int64_t rows, std::int64_t cols, bool transposed) {
  return {{rows, cols},
          memory::data_type::f32,
          transposed ? memory::format_tag::ba : memory::format_tag::ab};
}

class Prepared final : public PreparedProduct {
 public:
  Prepared(const LayerProduct& product, std::span<const ProductOperands> operands)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const bool of_weights = product.pass == ProductPass::kWeights;
    const bool forward = product.pass == ProductPass::kForward;
    const std::int64_t m = product.rows();
    const std::int64_t n = product.cols();
    const std::int64_t k = product.terms();
    const memory::desc left = plain(m, k, of_weights);
    const memory::desc right =
        of_weights ? plain(k, n, false)
                   : memory::desc({k, n}, memory::data_type::f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(left, right, plain(m, n, false)),
                                              engine_);
    primitive_ = dnnl::matmul(chosen);
    for (const ProductOperands& of : operands) {
      const auto at = [&](const memory::desc& desc, const float* data) {
        return memory(desc, engine_, const_cast<float*>(data));
      };
      memory weights;
      if (of_weights) {
        weights = at(right, of.x);
      } else {
        memory as_it_lies = at(plain(k, n, forward), of.w);
        weights = memory(chosen.weights_desc(), engine_);
        dnnl::reorder(as_it_lies, weights).execute(stream_, as_it_lies, weights);
      }
      arguments_.push_back({{DNNL_ARG_SRC, at(left, forward ? of.x : of.dy)},
                            {DNNL_ARG_WEIGHTS, weights},
                            {DNNL_ARG_DST, at(plain(m, n, false), of.result)}});
    }
    stream_.wait();
  }

  void run(std::size_t number) override {
    primitive_.execute(stream_, arguments_[number]);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::vector<std::unordered_map<int, memory>> arguments_;
};

class Onednn final : public ProductLibrary {
 public:
  [[nodiscard]] std::string name() const override {
    const dnnl_version_t* const version = dnnl::version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }

  std::unique_ptr<PreparedProduct> prepare(const LayerProduct& product,
                                           std::span<const ProductOperands> operands) override {
    return std::make_unique<Prepared>(product, operands);
  }
};

}  // namespace

std::unique_ptr<ProductLibrary> onednn_products() {
  use_one_thread();
  return std::make_unique<Onednn>();
}

}  // namespace weft::bench
