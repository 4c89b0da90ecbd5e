/// What a file that is not in the weft format is likely to be.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace weft::data {

/// What would read a file that begins with `bytes`, as the end of a message: "it is Parquet, ...".
std::string what_reads(std::span<const std::byte> bytes);

}  // namespace weft::data
