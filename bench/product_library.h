/// Libraries of matrix products under one interface, for products_bench: the three products of a
/// linear layer as a step makes them. All of fp32, on the calling thread alone.
///
/// A library may lay the weights out as it likes beforehand, since a step does that once for all
/// slices. Activations and their gradients it finds as the layers around leave them, row by row,
/// and results it leaves like that; whatever it copies of them, it copies while the clock runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::bench {

/// The product of a pass: y = x Wᵀ, dx = dy W, or dW = dyᵀ x.
enum class ProductPass : std::uint8_t { kForward, kInputs, kWeights };

/// One layer's product, with its samples.
struct LayerProduct {
  ProductPass pass = ProductPass::kForward;
  std::int64_t samples = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;

  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(samples) * static_cast<double>(in) * static_cast<double>(out);
  }

  /// Rows and columns of the result, [samples, out], [samples, in] or [out, in], and the terms of
  /// each of its sums.
  [[nodiscard]] std::int64_t rows() const { return pass == ProductPass::kWeights ? out : samples; }

  [[nodiscard]] std::int64_t cols() const { return pass == ProductPass::kForward ? out : in; }

  [[nodiscard]] std::int64_t terms() const {
    return pass == ProductPass::kWeights ? samples : (pass == ProductPass::kForward ? in : out);
  }

  [[nodiscard]] std::int64_t result_floats() const { return rows() * cols(); }
};

/// Matrices without gaps, on cache lines.
struct ProductOperands {
  const float* x = nullptr;   ///< [samples, in]; not of kInputs
  const float* dy = nullptr;  ///< [samples, out]; not of kForward
  const float* w = nullptr;   ///< [out, in]; not of kWeights
  float* result = nullptr;
};

/// A product that is ready to be made.
class PreparedProduct {
 public:
  PreparedProduct() = default;
  virtual ~PreparedProduct() = default;
  PreparedProduct(const PreparedProduct&) = delete;
  PreparedProduct& operator=(const PreparedProduct&) = delete;

  /// Writes the result of the operands with this number.
  virtual void run(std::size_t number) = 0;
};

class ProductLibrary {
 public:
  ProductLibrary() = default;
  virtual ~ProductLibrary() = default;
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  /// With its version.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Lays out the weights of each of `operands`, which outlive what is returned.
  virtual std::unique_ptr<PreparedProduct> prepare(const LayerProduct& product,
                                                   std::span<const ProductOperands> operands) = 0;
};

/// Returns the products that a step makes: by oneDNN or by Weft's own kernel
/// (kernels/cpu/matmul.h), with what it packs.
std::unique_ptr<ProductLibrary> own_products();

/// The oneDNN that Weft is linked with.
std::unique_ptr<ProductLibrary> onednn_products();

/// A oneDNN of version 3 from a shared library of its own: the file's path. Null, with the reason
/// in `why`, where it cannot be had. The library stays loaded.
std::unique_ptr<ProductLibrary> onednn3_products(const std::string& path, std::string& why);

/// libxsmm, whose processor it chooses itself; null in a build without it.
std::unique_ptr<ProductLibrary> xsmm_products();

}  // namespace weft::bench
