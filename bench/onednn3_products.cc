// oneDNN 3 beside the oneDNN that Weft is linked with: its functions of C are found by name in the
// library, which takes its own symbols before those of others (RTLD_DEEPBIND). What little of its
// interface is needed is declared here, so that no header of it has to be there.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "bench/gemm_probe.h"
#include "bench/product_library.h"
#include "weft/base/error.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

// The values of oneapi/dnnl/dnnl_types.h of version 3.
constexpr int kCpu = 1;
constexpr int kFloat32 = 3;
constexpr int kAnyLayout = 1;
constexpr int kWeightsDesc = 131;
constexpr int kSource = 1;
constexpr int kTo = 17;
constexpr int kDestination = 17;
constexpr int kWeights = 33;

using Dims = std::int64_t[12];
using Handle = void*;

struct Argument {
  int number;
  Handle memory;
};

struct Version {
  int major, minor, patch;
};

struct Functions {
  const Version* (*version)();
  int (*engine_create)(Handle*, int, std::size_t);
  int (*stream_create)(Handle*, Handle, unsigned);
  int (*stream_wait)(Handle);
  int (*memory_desc_create_with_strides)(Handle*, int, const Dims, int, const Dims);
  int (*memory_desc_create_with_tag)(Handle*, int, const Dims, int, int);
  std::size_t (*memory_desc_get_size)(Handle);
  int (*memory_create)(Handle*, Handle, Handle, void*);
  int (*matmul_primitive_desc_create)(Handle*, Handle, Handle, Handle, Handle, Handle, Handle);
  int (*reorder_primitive_desc_create)(Handle*, Handle, Handle, Handle, Handle, Handle);
  Handle (*primitive_desc_query_md)(Handle, int, int);
  int (*primitive_create)(Handle*, Handle);
  int (*primitive_execute)(Handle, Handle, int, const Argument*);
};

void check(int status) {
  if (status != 0) {
    fail(ErrorCode::kInternal, "oneDNN 3 ended with status {}", status);
  }
}

/// Handles are never given back: a benchmark makes a few hundred.
class Prepared final : public PreparedProduct {
 public:
  Prepared(const Functions& dnnl,
           Handle engine,
           Handle stream,
           const LayerProduct& product,
           std::span<const ProductOperands> operands)
      : dnnl_(dnnl), engine_(engine), stream_(stream), reordered_(operands.size()) {
    const bool of_weights = product.pass == ProductPass::kWeights;
    const bool forward = product.pass == ProductPass::kForward;
    const std::int64_t m = product.rows();
    const std::int64_t n = product.cols();
    const std::int64_t k = product.terms();
    const Handle left = plain(m, k, of_weights);
    const Handle result = plain(m, n, false);
    const Handle right = of_weights ? plain(k, n, false) : any(k, n);
    Handle chosen = nullptr;
    check(dnnl_.matmul_primitive_desc_create(&chosen, engine_, left, right, nullptr, result,
                                             nullptr));
    check(dnnl_.primitive_create(&primitive_, chosen));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const ProductOperands& of = operands[i];
      const Handle weights =
          of_weights
              ? at(right, of.x)
              : reorder(at(plain(k, n, forward), of.w), plain(k, n, forward),
                        dnnl_.primitive_desc_query_md(chosen, kWeightsDesc, 0), reordered_[i]);
      arguments_.push_back({{kSource, at(left, forward ? of.x : of.dy)},
                            {kWeights, weights},
                            {kDestination, at(result, of.result)}});
    }
  }

  void run(std::size_t number) override {
    check(dnnl_.primitive_execute(primitive_, stream_, 3, arguments_[number].data()));
    check(dnnl_.stream_wait(stream_));
  }

 private:
  [[nodiscard]] Handle plain(std::int64_t rows, std::int64_t cols, bool transposed) const {
    const Dims dims = {rows, cols};
    const Dims by_rows = {cols, 1};
    const Dims by_cols = {1, rows};
    Handle desc = nullptr;
    check(dnnl_.memory_desc_create_with_strides(&desc, 2, dims, kFloat32,
                                                transposed ? by_cols : by_rows));
    return desc;
  }

  [[nodiscard]] Handle any(std::int64_t rows, std::int64_t cols) const {
    const Dims dims = {rows, cols};
    Handle desc = nullptr;
    check(dnnl_.memory_desc_create_with_tag(&desc, 2, dims, kFloat32, kAnyLayout));
    return desc;
  }

  [[nodiscard]] Handle at(Handle desc, const void* data) const {
    Handle memory = nullptr;
    check(dnnl_.memory_create(&memory, desc, engine_, const_cast<void*>(data)));
    return memory;
  }

  Handle reorder(Handle from, Handle from_desc, Handle to_desc, HostBlock& memory) const {
    const Handle to = at(
        to_desc, memory.at_least(static_cast<std::int64_t>(dnnl_.memory_desc_get_size(to_desc))));
    Handle chosen = nullptr;
    check(dnnl_.reorder_primitive_desc_create(&chosen, from_desc, engine_, to_desc, engine_,
                                              nullptr));
    Handle primitive = nullptr;
    check(dnnl_.primitive_create(&primitive, chosen));
    const Argument arguments[] = {{kSource, from}, {kTo, to}};
    check(dnnl_.primitive_execute(primitive, stream_, 2, arguments));
    check(dnnl_.stream_wait(stream_));
    return to;
  }

  const Functions& dnnl_;
  Handle engine_;
  Handle stream_;
  Handle primitive_ = nullptr;
  std::vector<HostBlock> reordered_;
  std::vector<std::vector<Argument>> arguments_;
};

class Onednn3 final : public ProductLibrary {
 public:
  explicit Onednn3(const Functions& functions) : dnnl_(functions) {
    check(dnnl_.engine_create(&engine_, kCpu, 0));
    check(dnnl_.stream_create(&stream_, engine_, 1));
  }

  [[nodiscard]] std::string name() const override {
    const Version* const version = dnnl_.version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }

  std::unique_ptr<PreparedProduct> prepare(const LayerProduct& product,
                                           std::span<const ProductOperands> operands) override {
    return std::make_unique<Prepared>(dnnl_, engine_, stream_, product, operands);
  }

 private:
  Functions dnnl_;
  Handle engine_ = nullptr;
  Handle stream_ = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<ProductLibrary> onednn3_products(const std::string& path, std::string& why) {
  if (path.empty()) {
    why = "no file of it was named";
    return nullptr;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr) {
    why = dlerror();
    return nullptr;
  }
  Functions f{};
  if (!find(library, "dnnl_version", f.version) || f.version()->major != 3) {
    why = fmt::format("'{}' is no oneDNN of version 3", path);
    return nullptr;
  }
  const bool all =
      find(library, "dnnl_engine_create", f.engine_create) &&
      find(library, "dnnl_stream_create", f.stream_create) &&
      find(library, "dnnl_stream_wait", f.stream_wait) &&
      find(library, "dnnl_memory_desc_create_with_strides", f.memory_desc_create_with_strides) &&
      find(library, "dnnl_memory_desc_create_with_tag", f.memory_desc_create_with_tag) &&
      find(library, "dnnl_memory_desc_get_size", f.memory_desc_get_size) &&
      find(library, "dnnl_memory_create", f.memory_create) &&
      find(library, "dnnl_matmul_primitive_desc_create", f.matmul_primitive_desc_create) &&
      find(library, "dnnl_reorder_primitive_desc_create", f.reorder_primitive_desc_create) &&
      find(library, "dnnl_primitive_desc_query_md", f.primitive_desc_query_md) &&
      find(library, "dnnl_primitive_create", f.primitive_create) &&
      find(library, "dnnl_primitive_execute", f.primitive_execute);
  if (!all) {
    why = fmt::format("'{}' lacks functions of oneDNN 3", path);
    return nullptr;
  }
  use_one_thread();
  return std::make_unique<Onednn3>(f);
}

}  // namespace weft::bench
