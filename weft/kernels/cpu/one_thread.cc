#include "weft/kernels/cpu/one_thread.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "weft/base/error.h"

namespace weft::kernels {

OneThread::OneThread() {
  static const Runtime runtime = find();
  runtime_ = &runtime;
  if (runtime_->set != nullptr) {
    before_ = runtime_->get();
    runtime_->set(1);
  }
}

OneThread::~OneThread() {
  if (runtime_->set != nullptr) {
    runtime_->set(before_);
  }
}

OneThread::Runtime OneThread::find() {
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

}  // namespace weft::kernels
