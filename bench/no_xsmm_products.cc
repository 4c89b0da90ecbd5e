// The build without libxsmm.
#include "bench/product_library.h"

namespace weft::bench {

std::unique_ptr<ProductLibrary> xsmm_products() {
  return nullptr;
}

}  // namespace weft::bench
