// How many times the process has called operator new.
#pragma once

#include <cstdint>

namespace weft::embedding::test {

std::int64_t allocation_count();

}  // namespace weft::embedding::test
