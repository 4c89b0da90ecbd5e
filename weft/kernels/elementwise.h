/// Copies and sums of matrices of one slice.
///
/// Shapes      All matrices of a call agree; views may be strided, and an output may be the same
///             view as an input of its type, never a shifted one.
/// Memory      Of ctx.device; the lists of views are host memory that the call reads at once.
/// Threads     The calling thread; on CUDA the call is enqueued.
/// Order       Every element is computed by itself, in fp32, so all backends give the same bits.
///             What is stored as bf16 is rounded to nearest, ties to even; NaN stays NaN.
/// Errors      Error(kInternal) on shapes or types that disagree.
/// Cost        Bytes read and written.
#pragma once

#include <span>

#include "weft/kernels/operand.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Arguments of assign().
struct Assign {
  ConstOperand from;
  Operand to;
};

/// to = from, rounded where `to` is bf16 and `from` is not.
void assign(Context& ctx, const Assign& args);

/// Arguments of add().
struct Add {
  ConstOperand from;
  Operand to;  ///< of the same type
};

/// to += from.
void add(Context& ctx, const Add& args);

/// Arguments of concatenate(): matrices of equal rows side by side.
struct Concatenate {
  std::span<const Matrix<const float>> from;
  Operand to;  ///< its columns are those of `from`, one after the other
};

/// to = [from_0, from_1, ..], rounded where `to` is bf16.
void concatenate(Context& ctx, const Concatenate& args);

/// Arguments of split(): the way back.
struct Split {
  ConstOperand from;
  std::span<const Matrix<float>> to;
};

/// [to_0, to_1, ..] = from.
void split(Context& ctx, const Split& args);

namespace cpu {
/// The same by the CPU's kernels.
void assign(Context& ctx, const Assign& args);
void add(Context& ctx, const Add& args);
void concatenate(Context& ctx, const Concatenate& args);
void split(Context& ctx, const Split& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void assign(Context& ctx, const Assign& args);
void add(Context& ctx, const Add& args);
void concatenate(Context& ctx, const Concatenate& args);
void split(Context& ctx, const Split& args);
}  // namespace cuda

namespace reference {
/// Plain loops.
void assign(Context& ctx, const Assign& args);
void add(Context& ctx, const Add& args);
void concatenate(Context& ctx, const Concatenate& args);
void split(Context& ctx, const Split& args);
}  // namespace reference

}  // namespace weft::kernels
