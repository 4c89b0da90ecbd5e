// Linear layers through oneDNN's matmul.
//
// forward          y  = x  · Wᵀ     W read with strides (1, stride): no transposed copy of ours
// backward_data    dx = dy · W
// backward_weight  dW = dyᵀ · x     dy read transposed
//
// Strided operands are copied to compact ones first, and a strided result is copied out: oneDNN
// picks another kernel for some strides, so bits would depend on where a matrix lies. Compact
// ones run in its blocked GEMM (brgemm) from AVX-512 on, which packs the second operand itself:
// about 245 GFLOP/s fp32 and 485 GFLOP/s bf16 on one Zen 5 core at 256 x 512 x 479. A primitive
// costs 0.1-10 ms to make and is kept per shape; scratch memory is one buffer, as large as the
// largest primitive needs.
#include "weft/kernels/matmul.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::kernels {

namespace {

// oneDNN as packaged runs its loops with OpenMP, in a team as large as the calling thread's setting
// says. Weft cuts work itself and needs teams of one: other teams would change bits (the weight
// gradient is split over threads) and oversubscribe the cores. The setting is per thread, so this
// sets it around each call and puts it back. Weft has no OpenMP of its own: the two functions
// are those of the runtime that oneDNN brings.
class OneThread {
 public:
  OneThread() {
    static const Runtime runtime = find();
    runtime_ = &runtime;
    if (runtime_->set != nullptr) {
      before_ = runtime_->get();
      runtime_->set(1);
    }
  }

  ~OneThread() {
    if (runtime_->set != nullptr) {
      runtime_->set(before_);
    }
  }

  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  struct Runtime {
    int (*get)() = nullptr;
    void (*set)(int) = nullptr;
  };

  static Runtime find() {
    const unsigned kind = dnnl::version()->cpu_runtime;
    if (kind == DNNL_RUNTIME_SEQ) {
      return {};
    }
    Runtime runtime;
    if (kind == DNNL_RUNTIME_OMP) {
      runtime.get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
      runtime.set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    }
    if (runtime.get == nullptr || runtime.set == nullptr) {
      fail(ErrorCode::kConfig,
           "matrix product: this oneDNN uses threading runtime {}, which Weft cannot hold to one "
           "thread; use a oneDNN built with OpenMP or with sequential loops",
           kind);
    }
    return runtime;
  }

  const Runtime* runtime_ = nullptr;
  int before_ = 1;
};

// Grow-only memory on cache lines.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  ~Scratch() { std::free(data_); }

  void* at_least(std::size_t bytes) {
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = (bytes + 4095) / 4096 * 4096;
      data_ = std::aligned_alloc(4096, bytes_);
      if (data_ == nullptr) {
        bytes_ = 0;
        throw std::bad_alloc();
      }
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

dnnl::memory::data_type onednn_type(DType dtype) {
  WEFT_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "matrix product of {}",
             to_string(dtype));
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// out[m, n] = a[m, k] · b[k, n], all compact.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;  // a lies as [k, m]
  bool b_transposed = false;  // b lies as [n, k]
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;
  Activation activation = Activation::kNone;
  std::int64_t bias = 0;  // 1 where there is one

  friend bool operator==(const Product&, const Product&) = default;
};

struct ProductHash {
  std::size_t operator()(const Product& p) const {
    std::uint64_t h = 0;
    for (const std::int64_t word :
         {p.m, p.n, p.k, static_cast<std::int64_t>(p.a_transposed),
          static_cast<std::int64_t>(p.b_transposed), static_cast<std::int64_t>(p.in),
          static_cast<std::int64_t>(p.out), static_cast<std::int64_t>(p.activation), p.bias}) {
      h = hash_combine(h, static_cast<std::uint64_t>(word));
    }
    return h;
  }
};

// A primitive and the memory objects it is called with; only their addresses change.
struct Made {
  dnnl::matmul primitive;
  std::string implementation;
  std::unordered_map<int, dnnl::memory> arguments;
  std::size_t scratch_bytes = 0;
};

Made make(const Product& p, const dnnl::engine& engine) {
  using dnnl::memory;
  using tag = memory::format_tag;
  const memory::desc a({p.m, p.k}, onednn_type(p.in), p.a_transposed ? tag::ba : tag::ab);
  const memory::desc b({p.k, p.n}, onednn_type(p.in), p.b_transposed ? tag::ba : tag::ab);
  const memory::desc out({p.m, p.n}, onednn_type(p.out), tag::ab);
  const memory::desc bias({1, p.n}, memory::data_type::f32, tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.activation == Activation::kRelu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(post);
  }
  try {
    const dnnl::matmul::primitive_desc chosen(
        p.bias != 0 ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out),
        attributes, engine);
    const auto argument = [&engine](const memory::desc& desc) {
      return memory(desc, engine, DNNL_MEMORY_NONE);
    };
    Made made{
        dnnl::matmul(chosen), chosen.impl_info_str(), {}, chosen.scratchpad_desc().get_size()};
    made.arguments = {{DNNL_ARG_SRC, argument(a)},
                      {DNNL_ARG_WEIGHTS, argument(b)},
                      {DNNL_ARG_DST, argument(out)},
                      {DNNL_ARG_SCRATCHPAD, argument(chosen.scratchpad_desc())}};
    if (p.bias != 0) {
      made.arguments.emplace(DNNL_ARG_BIAS, argument(bias));
    }
    return made;
  } catch (const dnnl::error& error) {
    fail(ErrorCode::kConfig, "matrix product {} x {} x {} of {} into {}: oneDNN refuses it: {}",
         p.m, p.n, p.k, to_string(p.in), to_string(p.out), error.what());
  }
}

Product forward_product(const ConstOperand& x,
                        const ConstOperand& w,
                        const float* bias,
                        Activation activation,
                        const Operand& y) {
  WEFT_CHECK(x.cols == w.cols && y.rows == x.rows && y.cols == w.rows && x.dtype == w.dtype,
             "y[{}, {}] = x[{}, {}] w[{}, {}]ᵀ", y.rows, y.cols, x.rows, x.cols, w.rows, w.cols);
  return {.m = x.rows,
          .n = w.rows,
          .k = x.cols,
          .b_transposed = true,
          .in = x.dtype,
          .out = y.dtype,
          .activation = activation,
          .bias = bias != nullptr ? 1 : 0};
}

void copy_rows(const ConstOperand& from, std::int64_t to_stride, void* to) {
  const auto size = static_cast<std::size_t>(size_of(from.dtype));
  for (std::int64_t i = 0; i < from.rows; ++i) {
    std::memcpy(
        static_cast<std::byte*>(to) + static_cast<std::size_t>(i * to_stride) * size,
        static_cast<const std::byte*>(from.data) + static_cast<std::size_t>(i * from.stride) * size,
        static_cast<std::size_t>(from.cols) * size);
  }
}

std::size_t compact_bytes(std::int64_t rows, std::int64_t cols, DType dtype) {
  return static_cast<std::size_t>(rows * cols * size_of(dtype));
}

}  // namespace

struct Matmul::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Product, Made, ProductHash> made;
  Scratch scratch;
  Scratch compact_a;
  Scratch compact_b;
  Scratch compact_out;

  static const void* compact(const ConstOperand& operand, Scratch& memory) {
    if (operand.stride == operand.cols || operand.rows == 1) {
      return operand.data;
    }
    void* copy = memory.at_least(compact_bytes(operand.rows, operand.cols, operand.dtype));
    copy_rows(operand, operand.cols, copy);
    return copy;
  }

  Made& find(const Product& product) {
    const auto it = made.find(product);
    return it != made.end() ? it->second
                            : made.emplace(product, make(product, engine)).first->second;
  }

  void run(const Product& product,
           const ConstOperand& a,
           const ConstOperand& b,
           const float* bias,
           const Operand& out) {
    const OneThread one_thread;
    Made& primitive = find(product);
    const auto set = [&primitive](int argument, const void* data) {
      // oneDNN's handles are not const; inputs are only read.
      primitive.arguments.at(argument).set_data_handle(const_cast<void*>(data));
    };
    const bool strided = out.stride != out.cols && out.rows > 1;
    void* to =
        strided ? compact_out.at_least(compact_bytes(out.rows, out.cols, out.dtype)) : out.data;
    set(DNNL_ARG_SRC, compact(a, compact_a));
    set(DNNL_ARG_WEIGHTS, compact(b, compact_b));
    set(DNNL_ARG_DST, to);
    set(DNNL_ARG_SCRATCHPAD, scratch.at_least(primitive.scratch_bytes));
    if (bias != nullptr) {
      set(DNNL_ARG_BIAS, bias);
    }
    primitive.primitive.execute(stream, primitive.arguments);
    stream.wait();
    if (strided) {
      ConstOperand result;
      result.data = to;
      result.dtype = out.dtype;
      result.rows = out.rows;
      result.cols = out.cols;
      result.stride = out.cols;
      copy_rows(result, out.stride, out.data);
    }
  }
};

Matmul::Matmul() : impl_(std::make_unique<Impl>()) {
}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

void Matmul::forward(const ConstOperand& x,
                     const ConstOperand& w,
                     const float* bias,
                     Activation activation,
                     const Operand& y) {
  const Product product = forward_product(x, w, bias, activation, y);
  if (product.m > 0) {
    impl_->run(product, x, w, bias, y);
  }
}

void Matmul::backward_data(const ConstOperand& dy, const ConstOperand& w, const Operand& dx) {
  WEFT_CHECK(dy.cols == w.rows && dx.rows == dy.rows && dx.cols == w.cols && dy.dtype == w.dtype,
             "dx[{}, {}] = dy[{}, {}] w[{}, {}]", dx.rows, dx.cols, dy.rows, dy.cols, w.rows,
             w.cols);
  if (dy.rows == 0) {
    return;
  }
  const Product product{.m = dy.rows, .n = w.cols, .k = dy.cols, .in = dy.dtype, .out = dx.dtype};
  impl_->run(product, dy, w, nullptr, dx);
}

void Matmul::backward_weight(const ConstOperand& dy, const ConstOperand& x, Matrix<float> dw) {
  WEFT_CHECK(dy.rows == x.rows && dw.rows == dy.cols && dw.cols == x.cols && dy.dtype == x.dtype,
             "dw[{}, {}] = dy[{}, {}]ᵀ x[{}, {}]", dw.rows, dw.cols, dy.rows, dy.cols, x.rows,
             x.cols);
  if (dy.rows == 0) {
    for (std::int64_t i = 0; i < dw.rows; ++i) {
      std::fill_n(dw.row(i), dw.cols, 0.0F);
    }
    return;
  }
  const Product product{.m = dy.cols,
                        .n = x.cols,
                        .k = dy.rows,
                        .a_transposed = true,
                        .in = dy.dtype,
                        .out = DType::kFloat32};
  impl_->run(product, dy, x, nullptr, dw);
}

const char* Matmul::implementation(const ConstOperand& x,
                                   const ConstOperand& w,
                                   const float* bias,
                                   Activation activation,
                                   const Operand& y) {
  const OneThread one_thread;
  return impl_->find(forward_product(x, w, bias, activation, y)).implementation.c_str();
}

}  // namespace weft::kernels
