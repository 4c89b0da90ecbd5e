// Products as Weft makes them in a step: weights packed beforehand, operands of weight gradients
// transposed and packed as they come.
#include <cstddef>
#include <vector>

#include "bench/product_library.h"
#include "weft/kernels/cpu/matmul.h"
#include "weft/kernels/cpu/pack.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

kernels::PackedMatrix make_packed(std::int64_t rows, std::int64_t cols, HostBlock& memory) {
  return kernels::packed_matrix(
      DType::kFloat32, rows, cols,
      memory.at_least(kernels::packed_bytes(DType::kFloat32, rows, cols)));
}

class ByPackedWeights final : public PreparedProduct {
 public:
  ByPackedWeights(const LayerProduct& product, std::span<const ProductOperands> operands)
      : product_(product), operands_(operands), memory_(operands.size()) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const kernels::PackedMatrix& packed =
          weights_.emplace_back(make_packed(product.terms(), product.cols(), memory_[i]));
      const Matrix<const float> w = matrix(operands[i].w, product.out, product.in);
      if (product.pass == ProductPass::kForward) {
        kernels::pack_transposed(w, packed, {0, packed.panels()});
      } else {
        kernels::pack(w, packed, {0, packed.panels()});
      }
    }
  }

  void run(std::size_t number) override {
    const ProductOperands& of = operands_[number];
    const float* const left = product_.pass == ProductPass::kForward ? of.x : of.dy;
    matmul_.multiply(matrix(left, product_.samples, product_.terms()), weights_[number],
                     matrix(of.result, product_.rows(), product_.cols()));
  }

 private:
  LayerProduct product_;
  std::span<const ProductOperands> operands_;
  kernels::Matmul matmul_;
  std::vector<HostBlock> memory_;
  std::vector<kernels::PackedMatrix> weights_;
};

class OfPackedSamples final : public PreparedProduct {
 public:
  OfPackedSamples(const LayerProduct& product, std::span<const ProductOperands> operands)
      : product_(product),
        operands_(operands),
        padded_(kernels::packed_rows(DType::kFloat32, product.samples)),
        left_(matrix(left_memory_.at_least_of<float>(product.out * padded_), product.out, padded_)),
        right_(make_packed(product.samples, product.in, right_memory_)) {}

  void run(std::size_t number) override {
    const ProductOperands& of = operands_[number];
    const auto [pass, samples, in, out] = product_;
    kernels::transpose(matrix(of.dy, samples, out), left_);
    kernels::pack(matrix(of.x, samples, in), right_, {0, right_.panels()});
    kernels::PackedMatrix padded = right_;  // its added rows are zeros
    padded.rows = padded_;
    if (padded.layers() == 1) {
      matmul_.multiply_first(left_, padded, matrix(of.result, out, in));
    } else {
      matmul_.multiply(left_, padded, matrix(of.result, out, in));
    }
  }

 private:
  LayerProduct product_;
  std::span<const ProductOperands> operands_;
  std::int64_t padded_;
  kernels::Matmul matmul_;
  HostBlock left_memory_;
  HostBlock right_memory_;
  Matrix<float> left_;
  kernels::PackedMatrix right_;
};

class OwnProducts final : public ProductLibrary {
 public:
  [[nodiscard]] std::string name() const override { return "Weft"; }

  std::unique_ptr<PreparedProduct> prepare(const LayerProduct& product,
                                           std::span<const ProductOperands> operands) override {
    if (product.pass == ProductPass::kWeights) {
      return std::make_unique<OfPackedSamples>(product, operands);
    }
    return std::make_unique<ByPackedWeights>(product, operands);
  }
};

}  // namespace

std::unique_ptr<ProductLibrary> own_products() {
  return std::make_unique<OwnProducts>();
}

}  // namespace weft::bench
