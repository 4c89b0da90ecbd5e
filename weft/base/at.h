/// at(i): the place of an element, as containers count them.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace weft {

/// `i` is a number that is not negative, or an enumeration. Nothing is checked.
template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
constexpr std::size_t at(T i) {
  return static_cast<std::size_t>(i);
}

}  // namespace weft
