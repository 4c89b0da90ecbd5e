// libxsmm's matrices lie column by column, so that a product of ours is that of the transposed
// operands, in the other order, and the right operand's panels (weft/kernels/cpu/pack.h) are blocks
// of 64 rows of its left one. Batch-reduce products of 64 x 64 x 64, as Intel's DLRM on clusters of
// CPUs is made of.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>
#include <libxsmm.h>

#include "bench/product_library.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/pack.h"
#include "weft/layout/products.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

using layout::kPanel;

/// out[m, n] = or += a[m, k] · b[k, n], b in panels of `panel_rows` rows; a and out of these
/// strides.
struct Product {
  std::int64_t m, n, k;
  std::int64_t a_stride, panel_rows, out_stride;
};

/// One kernel of a block of columns and rows, over whole 64s of k and over the rest.
struct Block {
  libxsmm_smmfunction_reducebatch_strd whole = nullptr;
  libxsmm_smmfunction_reducebatch_strd rest = nullptr;
};

class Plan {
 public:
  Plan(const Product& p, bool adds) : p_(p) {
    blocks_ = {make(kPanel, kPanel, adds), make(p.n % kPanel, kPanel, adds),
               make(kPanel, p.m % kPanel, adds), make(p.n % kPanel, p.m % kPanel, adds)};
  }

  void run(const float* a, const float* b, float* out) const {
    const unsigned long long whole = static_cast<unsigned long long>(p_.k / kPanel);
    const unsigned long long one = 1;
    for (std::int64_t col = 0; col < p_.n; col += kPanel) {
      const float* const panel = b + col * p_.panel_rows;
      for (std::int64_t row = 0; row < p_.m; row += kPanel) {
        const Block& block = blocks_[static_cast<std::size_t>((p_.n - col < kPanel ? 1 : 0) +
                                                              (p_.m - row < kPanel ? 2 : 0))];
        const float* const left = a + row * p_.a_stride;
        float* const to = out + row * p_.out_stride + col;
        if (whole > 0) {
          block.whole(panel, left, to, &whole);
        }
        if (p_.k % kPanel > 0) {
          const std::int64_t done = static_cast<std::int64_t>(whole) * kPanel;
          block.rest(panel + done * kPanel, left + done, to, &one);
        }
      }
    }
  }

 private:
  [[nodiscard]] Block make(std::int64_t cols, std::int64_t rows, bool adds) const {
    if (cols == 0 || rows == 0 || cols > p_.n || rows > p_.m) {
      return {};
    }
    const auto dispatch = [&](std::int64_t depth, bool keeps) {
      const auto lda = static_cast<libxsmm_blasint>(kPanel);
      const auto ldb = static_cast<libxsmm_blasint>(p_.a_stride);
      const auto ldc = static_cast<libxsmm_blasint>(p_.out_stride);
      const float alpha = 1.0F;
      const float beta = keeps ? 1.0F : 0.0F;
      const auto kernel = libxsmm_smmdispatch_reducebatch_strd(
          static_cast<libxsmm_blasint>(cols), static_cast<libxsmm_blasint>(rows),
          static_cast<libxsmm_blasint>(depth),
          static_cast<libxsmm_blasint>(kPanel * kPanel * sizeof(float)),
          static_cast<libxsmm_blasint>(kPanel * sizeof(float)), &lda, &ldb, &ldc, &alpha, &beta,
          nullptr, nullptr);
      if (kernel == nullptr) {
        fail(ErrorCode::kInternal, "libxsmm has no product of {} x {} x {}", cols, rows, depth);
      }
      return kernel;
    };
    const std::int64_t rest = p_.k % kPanel;
    Block block;
    block.whole = p_.k >= kPanel ? dispatch(kPanel, adds) : nullptr;
    block.rest = rest > 0 ? dispatch(rest, adds || p_.k >= kPanel) : nullptr;
    return block;
  }

  Product p_;
  std::vector<Block> blocks_;
};

/// In panels of all its rows, also where it is deep.
void pack_panels(Matrix<const float> from, bool transposed, HostBlock& memory) {
  const std::int64_t rows = transposed ? from.cols : from.rows;
  const std::int64_t cols = transposed ? from.rows : from.cols;
  const std::int64_t panels = (cols + kPanel - 1) / kPanel;
  auto* const to = memory.at_least_of<float>(panels * rows * kPanel);
  std::fill_n(to, panels * rows * kPanel, 0.0F);
  for (std::int64_t i = 0; i < from.rows; ++i) {
    for (std::int64_t j = 0; j < from.cols; ++j) {
      const std::int64_t row = transposed ? j : i;
      const std::int64_t col = transposed ? i : j;
      to[(col / kPanel * rows + row) * kPanel + col % kPanel] = from.row(i)[j];
    }
  }
}

class ByWeights final : public PreparedProduct {
 public:
  ByWeights(const LayerProduct& product, std::span<const ProductOperands> operands)
      : forward_(product.pass == ProductPass::kForward),
        operands_(operands),
        plan_(shape(product), false),
        weights_(operands.size()) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      pack_panels(matrix(operands[i].w, product.out, product.in), forward_, weights_[i]);
    }
  }

  void run(std::size_t number) override {
    const ProductOperands& of = operands_[number];
    plan_.run(forward_ ? of.x : of.dy, weights_[number].at_least_of<float>(1), of.result);
  }

 private:
  static Product shape(const LayerProduct& product) {
    const bool forward = product.pass == ProductPass::kForward;
    const std::int64_t depth = forward ? product.in : product.out;
    const std::int64_t width = forward ? product.out : product.in;
    return {product.samples, width, depth, depth, depth, width};
  }

  bool forward_;
  std::span<const ProductOperands> operands_;
  Plan plan_;
  std::vector<HostBlock> weights_;
};

class OfWeights final : public PreparedProduct {
 public:
  OfWeights(const LayerProduct& product, std::span<const ProductOperands> operands)
      : product_(product),
        operands_(operands),
        padded_(kernels::packed_rows(DType::kFloat32, product.samples)),
        plan_({product.out, product.in, product.samples, padded_, padded_, product.in}, false) {
    left_.at_least_of<float>(product.out * padded_);
    right_.at_least(kernels::packed_bytes(DType::kFloat32, product.samples, product.in));
  }

  void run(std::size_t number) override {
    const ProductOperands& of = operands_[number];
    const auto [pass, samples, in, out] = product_;
    const Matrix<float> left = matrix(left_.at_least_of<float>(out * padded_), out, padded_);
    kernels::transpose(matrix(of.dy, samples, out), left);
    kernels::PackedMatrix right =
        kernels::packed_matrix(DType::kFloat32, samples, in, right_.at_least(1));
    right.strip = kPanel;  // on every target
    kernels::pack(matrix(of.x, samples, in), right, {0, right.panels()});
    plan_.run(left.data, static_cast<const float*>(right.data), of.result);
  }

 private:
  LayerProduct product_;
  std::span<const ProductOperands> operands_;
  std::int64_t padded_;
  Plan plan_;
  HostBlock left_;
  HostBlock right_;
};

class Xsmm final : public ProductLibrary {
 public:
  [[nodiscard]] std::string name() const override {
    return fmt::format("libxsmm {}.{}", LIBXSMM_VERSION_MAJOR, LIBXSMM_VERSION_MINOR);
  }

  std::unique_ptr<PreparedProduct> prepare(const LayerProduct& product,
                                           std::span<const ProductOperands> operands) override {
    if (product.pass == ProductPass::kWeights) {
      return std::make_unique<OfWeights>(product, operands);
    }
    return std::make_unique<ByWeights>(product, operands);
  }
};

}  // namespace

std::unique_ptr<ProductLibrary> xsmm_products() {
  libxsmm_init();
  return std::make_unique<Xsmm>();
}

}  // namespace weft::bench
