// Products through oneDNN's matmul with operands in its own blocked layouts. A kernel of ours
// (panel_product.h) makes those of AVX2, where oneDNN reads no such layout, and from AVX-512 on the
// terms of sums that are made in fp32.
//
// The right operand comes packed (pack.h), so that no call reorders it: from AVX-512 on oneDNN runs
// its blocked GEMM (brgemm), which would pack a plain one itself, per call. Strided left operands
// are copied to compact ones first, and a strided result is copied out: oneDNN picks another kernel
// for some strides, so bits would depend on where a matrix lies. A primitive costs 0.1-10 ms to
// make and is kept per shape; scratch memory is one buffer, as large as the largest needs. Below
// AVX2 oneDNN's GEMM takes more per call, by itself, for its own copies of both operands.
//
// bf16 where the target has no products of it (target.h): the right operand is packed as fp32, the
// left one is widened as it is made compact, and a bf16 result is rounded as it is copied out.
//
// multiply_add by oneDNN: brgemm sums a product in registers and, told to add, adds what lies at
// the result when it stores. That is the rounded product plus the old value, just as if they were
// added afterwards, but no document says so; each such primitive is therefore tried on random
// numbers when it is made, and where a bit differs the product is added afterwards.
#include "weft/kernels/cpu/matmul.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/cpu/one_thread.h"
#include "weft/kernels/cpu/panel_product.h"
#include "weft/kernels/target.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

namespace {

dnnl::memory::data_type onednn_type(DType dtype) {
  WEFT_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "matrix product of {}",
             to_string(dtype));
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

enum class Store : std::uint8_t { kOverwrite, kAdd };

// out[m, n] = a[m, k] · b[k, n], a and out compact, b packed.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t b_stride = 0;    // 0: in panels
  std::int64_t strip = kPanel;  // of these
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;
  Activation activation = Activation::kNone;
  Store store = Store::kOverwrite;
  bool has_bias = false;
  bool is_own = false;  // panel_product.h makes it

  friend bool operator==(const Product&, const Product&) = default;
};

struct ProductHash {
  std::size_t operator()(const Product& p) const {
    std::uint64_t h = 0;
    for (const std::int64_t word :
         {p.m, p.n, p.k, p.b_stride, static_cast<std::int64_t>(p.in),
          static_cast<std::int64_t>(p.out), static_cast<std::int64_t>(p.activation),
          static_cast<std::int64_t>(p.store), static_cast<std::int64_t>(p.has_bias)}) {
      h = hash_combine(h, static_cast<std::uint64_t>(word));
    }
    return h;
  }
};

// A primitive and the memory objects it is called with; only their addresses change. `call` lists
// them as the C interface takes them: that of C++ would make a new list for every product.
struct Made {
  dnnl::matmul primitive;
  std::string implementation;
  std::unordered_map<int, dnnl::memory> arguments;
  std::vector<dnnl_exec_arg_t> call;
  std::int64_t scratch_bytes = 0;
  bool adds_exactly = false;  // of Store::kAdd

  void point(int argument, const void* data) {
    // oneDNN's handles are not const; inputs are only read.
    arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }
};

dnnl::memory::desc right_operand(const Product& p) {
  using dnnl::memory;
  using tag = memory::format_tag;
  if (p.b_stride != 0) {
    return {{p.k, p.n}, onednn_type(p.in), {p.b_stride, 1}};
  }
  return {{p.k, p.n}, onednn_type(p.in), p.in == DType::kFloat32 ? tag::BA16a64b : tag::BA16a64b2a};
}

dnnl::primitive_attr attributes_of(const Product& p) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (p.store == Store::kAdd) {
    post.append_sum(1.0F);
  }
  if (p.activation == Activation::kRelu) {
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
  }
  attributes.set_post_ops(post);
  return attributes;
}

// Terms of an element that oneDNN sums in one chain from AVX-512 on, as panel_product.h does.
constexpr std::int64_t kChain = 512;

// A term of a sum may be Weft's own where other products are oneDNN's: the operands of weight
// gradients come from memory, and panel_product.h asks for them beforehand.
bool is_own_term(const Product& p) {
  return p.b_stride == 0 && p.in == DType::kFloat32 && p.k <= kChain;
}

Made make(const Product& p, const dnnl::engine& engine) {
  using dnnl::memory;
  using tag = memory::format_tag;
  const memory::desc a({p.m, p.k}, onednn_type(p.in), tag::ab);
  const memory::desc b = right_operand(p);
  const memory::desc out({p.m, p.n}, onednn_type(p.out), tag::ab);
  const memory::desc bias({1, p.n}, memory::data_type::f32, tag::ab);
  try {
    const dnnl::matmul::primitive_desc chosen(
        p.has_bias ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out),
        attributes_of(p), engine);
    const auto argument = [&engine](const memory::desc& desc) {
      return memory(desc, engine, DNNL_MEMORY_NONE);
    };
    Made made;
    made.primitive = dnnl::matmul(chosen);
    made.implementation = chosen.impl_info_str();
    made.scratch_bytes = static_cast<std::int64_t>(chosen.scratchpad_desc().get_size());
    made.arguments = {{DNNL_ARG_SRC, argument(a)},
                      {DNNL_ARG_WEIGHTS, argument(b)},
                      {DNNL_ARG_DST, argument(out)},
                      {DNNL_ARG_SCRATCHPAD, argument(chosen.scratchpad_desc())}};
    if (p.has_bias) {
      made.arguments.emplace(DNNL_ARG_BIAS, argument(bias));
    }
    for (const auto& [number, object] : made.arguments) {
      made.call.push_back({number, object.get()});
    }
    return made;
  } catch (const dnnl::error& error) {
    fail(ErrorCode::kConfig, "matrix product {} x {} x {} of {} into {}: oneDNN refuses it: {}",
         p.m, p.n, p.k, to_string(p.in), to_string(p.out), error.what());
  }
}

void check_operands(const ConstOperand& a, const PackedMatrix& b, const Operand& out) {
  WEFT_CHECK(a.cols == b.rows && out.rows == a.rows && out.cols == b.cols && a.dtype == b.dtype,
             "[{}, {}] = [{}, {}] of {} · [{}, {}] of {}", out.rows, out.cols, a.rows, a.cols,
             to_string(a.dtype), b.rows, b.cols, to_string(b.dtype));
}

void check_term(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out) {
  check_operands(a, b, out);
  WEFT_CHECK(Operand(out).is_compact() && b.layers() == 1,
             "[{}, {}] · [{}, {}] as a term of a strided sum, or too deep", a.rows, a.cols, b.rows,
             b.cols);
}

// A product as weft/layout counts what it needs.
layout::Product layout_of(const ConstOperand& a, const PackedMatrix& b, const Operand& out) {
  return {.rows = a.rows,
          .depth = a.cols,
          .cols = b.cols,
          .values = element_of(a.dtype),
          .out = element_of(out.dtype),
          .is_left_compact = a.is_compact(),
          .is_out_compact = out.is_compact()};
}

// A product is made in the types in which the target has one, over the whole depth of the packed
// operand, which has zeros behind its own.
Product product_of(const ConstOperand& a,
                   const PackedMatrix& b,
                   const Operand& out,
                   const Epilogue& epilogue) {
  return {.m = a.rows,
          .n = b.cols,
          .k = layout::product_depth(b.packing(), element_of(a.dtype), a.cols),
          .b_stride = b.stride,
          .strip = b.strip,
          .in = b.stored,
          .out = b.stored == b.dtype ? out.dtype : DType::kFloat32,
          .activation = epilogue.activation,
          .has_bias = epilogue.bias != nullptr,
          .is_own = b.stride == 0 && b.strip == layout::kStrip};
}

std::int64_t compact_bytes(std::int64_t rows, std::int64_t cols, DType dtype) {
  return rows * cols * size_of(dtype);
}

// A matrix of random numbers, and the memory it lies in.
struct Trial {
  std::vector<std::uint32_t> words;
  ConstOperand matrix;

  Trial(std::int64_t rows, std::int64_t cols, std::uint64_t key)
      : words(static_cast<std::size_t>(rows * cols)) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint64_t bits = mix64(key + i);
      // Of all sizes from 2^-8 to 2^8, so that sums are rounded and their order shows.
      const std::uint64_t exponent = 119 + (bits >> 32) % 16;
      words[i] = static_cast<std::uint32_t>((bits & 0x807FFFFFU) | (exponent << 23));
    }
    matrix = ConstOperand(weft::matrix(reinterpret_cast<const float*>(words.data()), rows, cols));
  }
};

}  // namespace

struct Matmul::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Product, Made, ProductHash> made;
  HostBlock scratch;
  HostBlock compact_a;
  HostBlock grouped_a;
  HostBlock compact_out;
  HostBlock sums;
  bool has_own = false;  // products that oneDNN did not make

  Made& find(const Product& product) {
    const auto it = made.find(product);
    if (it != made.end()) {
      return it->second;
    }
    Made& fresh = made.emplace(product, make(product, engine)).first->second;
    scratch.at_least(fresh.scratch_bytes);
    if (product.store == Store::kAdd) {
      fresh.adds_exactly = try_adding(product, fresh);
      if (!fresh.adds_exactly) {
        compact_out.at_least(layout::term_bytes(product.m, product.n));
      }
    }
    return fresh;
  }

  void execute(Made& primitive, const void* a, const void* b, const float* bias, void* out) {
    primitive.point(DNNL_ARG_SRC, a);
    primitive.point(DNNL_ARG_WEIGHTS, b);
    primitive.point(DNNL_ARG_DST, out);
    primitive.point(DNNL_ARG_SCRATCHPAD, scratch.at_least(primitive.scratch_bytes));
    if (bias != nullptr) {
      primitive.point(DNNL_ARG_BIAS, bias);
    }
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive.primitive.get(), stream.get(),
                               static_cast<int>(primitive.call.size()), primitive.call.data());
    if (status != dnnl_success) {
      fail(ErrorCode::kInternal, "matrix product: oneDNN's {} ended with status {}",
           primitive.implementation, static_cast<int>(status));
    }
    stream.wait();
  }

  void multiply(
      const Product& product, const void* a, const void* b, const float* bias, void* out) {
    if (product.is_own) {
      multiply_own(product, static_cast<const float*>(a), static_cast<const float*>(b), bias,
                   static_cast<float*>(out));
    } else {
      execute(find(product), a, b, bias, out);
    }
  }

  void multiply_own(
      const Product& product, const float* a, const float* b, const float* bias, float* out) {
    WEFT_CHECK(product.in == DType::kFloat32 && product.out == DType::kFloat32);
    if (!has_own) {
      has_own = true;
      dnnl::get_effective_cpu_isa();  // settles it, so that a later limit is refused (target.h)
    }
    multiply_panels({.m = product.m,
                     .n = product.n,
                     .k = product.k,
                     .strip = product.strip,
                     .bias = bias,
                     .activation = product.activation,
                     .adds = product.store == Store::kAdd},
                    a, b, out);
  }

  // a in `bytes` of compact rows of k values of the product's type, zeros behind its own.
  const void* copy_padded(const ConstOperand& a, const Product& product, std::int64_t bytes) {
    const std::int64_t k = product.k;
    Operand copy;
    copy.data = compact_a.at_least(bytes);
    copy.dtype = product.in;
    copy.rows = a.rows;
    copy.cols = k;
    copy.stride = k;
    assign(a, copy.slice_cols(0, a.cols));
    const auto tail = static_cast<std::size_t>(compact_bytes(1, k - a.cols, product.in));
    for (std::int64_t i = 0; tail > 0 && i < a.rows; ++i) {
      std::memset(copy.slice_rows(i, i + 1).slice_cols(a.cols, k).data, 0, tail);
    }
    return copy.data;
  }

  void run(const Product& product,
           const ConstOperand& a,
           const PackedMatrix& b,
           const float* bias,
           const Operand& out) {
    const OneThread one_thread;
    const layout::ProductScratch copies = layout::copies_of(b.packing(), layout_of(a, b, out));
    const void* const from = copies.left == 0 ? a.data : copy_padded(a, product, copies.left);
    if (copies.out == 0) {
      multiply(product, from, b.data, bias, out.data);
      return;
    }
    Operand result = out;
    result.dtype = product.out;
    result.stride = out.cols;
    result.data = compact_out.at_least(copies.out);
    multiply(product, from, b.data, bias, result.data);
    assign(result, out);
  }

  // out = act(Σ over layers of a's columns · b's layer + bias), by tiles of columns whose sums stay
  // in the second cache. The left operand is regrouped once, so that every layer's is compact.
  void run_layers(const ConstOperand& a,
                  const PackedMatrix& b,
                  const Epilogue& epilogue,
                  const Operand& out) {
    const layout::ProductScratch needs = layout::scratch_of(b.packing(), layout_of(a, b, out));
    auto* const grouped = static_cast<std::byte*>(grouped_a.at_least(needs.grouped));
    auto* const sum_memory = static_cast<float*>(sums.at_least(needs.sums));
    const auto left = [&](std::int64_t l) {
      const Range rows = b.layer_rows(l);
      Operand operand;
      operand.data = grouped + compact_bytes(a.rows, rows.begin, b.stored);
      operand.dtype = b.stored;
      operand.rows = a.rows;
      operand.cols = rows.size();
      operand.stride = rows.size();
      return operand;
    };
    for (std::int64_t l = 0; l < b.layers(); ++l) {
      const Range rows = b.layer_rows(l);
      assign(a.slice_cols(rows.begin, rows.end), left(l));
    }
    for (std::int64_t begin = 0; begin < b.cols; begin += layout::kDeepCols) {
      const std::int64_t end = std::min(b.cols, begin + layout::kDeepCols);
      const Matrix<float> sum = matrix(sum_memory, a.rows, end - begin);
      for (std::int64_t l = 0; l < b.layers(); ++l) {
        const PackedMatrix right = b.layer(l).slice_cols(begin, end);
        multiply_into(product_of(left(l), right, sum, {}), left(l), right, sum,
                      l == 0 ? Store::kOverwrite : Store::kAdd);
      }
      finish_product(sum, epilogue.bias == nullptr ? nullptr : epilogue.bias + begin,
                     epilogue.activation, out.slice_cols(begin, end));
    }
  }

  // out = or += a · b, of multiply_first() or multiply_add().
  void multiply_term(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out, Store store) {
    Product product = product_of(a, b, out, {});
    product.is_own = product.is_own || is_own_term(product);
    multiply_into(product, a, b, out, store);
  }

  // out = or += a · b. Either prepares the other: which of the two a shape meets first may be
  // chance.
  void multiply_into(Product product,
                     const ConstOperand& a,
                     const PackedMatrix& b,
                     Matrix<float> out,
                     Store store) {
    const OneThread one_thread;
    product.store = Store::kAdd;
    // find() makes and tries the other as well.
    const bool adds_exactly = product.is_own || find(product).adds_exactly;
    product.store = store;
    if (store == Store::kOverwrite || adds_exactly) {
      run(product, a, b, nullptr, out);
      return;
    }
    product.store = Store::kOverwrite;
    const Matrix<float> term =
        matrix(static_cast<float*>(compact_out.at_least(layout::term_bytes(out.rows, out.cols))),
               out.rows, out.cols);
    run(product, a, b, nullptr, term);
    add(term, out);
  }

  // Whether the primitive's sums are those of a product added afterwards. A few numbers may agree
  // by chance: small products are tried until so many have been compared.
  bool try_adding(const Product& product, Made& adding) {
    constexpr std::int64_t kCompared = 256;
    Product plain = product;
    plain.store = Store::kOverwrite;
    Made& without = find(plain);
    const std::int64_t trials = (kCompared + product.m * product.n - 1) / (product.m * product.n);
    for (std::int64_t trial = 0; trial < trials; ++trial) {
      if (!adds_exactly_once(product, without, adding, static_cast<std::uint64_t>(trial) << 40)) {
        return false;
      }
    }
    return true;
  }

  // The same of the random numbers that follow from `key`.
  bool adds_exactly_once(const Product& product, Made& without, Made& adding, std::uint64_t key) {
    const Trial x(product.m, product.k, key + 1);
    const Trial y(product.k, product.n, key + 2);
    const Trial before(product.m, product.n, key + 3);
    HostBlock memory[2];
    Operand a(matrix(static_cast<float*>(nullptr), product.m, product.k));
    a.dtype = product.in;
    a.data = memory[0].at_least(compact_bytes(product.m, product.k, product.in));
    assign(x.matrix, a);
    PackedMatrix b =
        packed_matrix(product.in, product.k, product.n,
                      memory[1].at_least(packed_bytes(product.in, product.k, product.n)));
    if (b.stride != product.b_stride) {
      return false;  // a slice of a row-major operand: not brgemm's
    }
    pack(y.matrix, b, {0, b.panels()});
    std::vector<float> sum(before.words.size());
    std::vector<float> added(sum.size());
    std::memcpy(added.data(), before.words.data(), added.size() * sizeof(float));
    execute(without, a.data, b.data, nullptr, sum.data());
    execute(adding, a.data, b.data, nullptr, added.data());
    const auto* old = before.matrix.as<float>().data;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (added[i] != old[i] + sum[i]) {
        return false;
      }
    }
    return true;
  }
};

Matmul::Matmul() : impl_(std::make_unique<Impl>()) {
}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

void Matmul::multiply(const ConstOperand& a,
                      const PackedMatrix& b,
                      const Operand& out,
                      const Epilogue& epilogue) {
  check_operands(a, b, out);
  if (a.rows == 0 || b.cols == 0) {
    return;
  }
  if (b.layers() > 1) {
    impl_->run_layers(a, b, epilogue, out);
  } else {
    impl_->run(product_of(a, b, out, epilogue), a, b, epilogue.bias, out);
  }
}

void Matmul::multiply_first(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out) {
  check_term(a, b, out);
  if (a.rows > 0 && b.cols > 0) {
    impl_->multiply_term(a, b, out, Store::kOverwrite);
  }
}

void Matmul::multiply_add(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out) {
  check_term(a, b, out);
  if (a.rows > 0 && b.cols > 0) {
    impl_->multiply_term(a, b, out, Store::kAdd);
  }
}

std::set<std::string> Matmul::implementations() const {
  std::set<std::string> names;
  for (const auto& [product, made] : impl_->made) {
    names.insert(made.implementation);
  }
  if (impl_->has_own) {
    names.insert("weft");
  }
  return names;
}

}  // namespace weft::kernels
