# One library per folder of weft/. What a module links is its line of tools/layers.txt, the file
# that tools/check_layers.py reads too, so a forbidden dependency fails to link and is named.

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/layers.txt")
file(STRINGS "${PROJECT_SOURCE_DIR}/tools/layers.txt" WEFT_LAYERS REGEX "^[a-z]+:")
set(WEFT_MODULES "${WEFT_LAYERS}")
list(TRANSFORM WEFT_MODULES REPLACE ":.*$" "")

set(WEFT_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False in GCC 12 with std::string and fmt (its PR 105329 and 105651).
  list(APPEND WEFT_WARNINGS -Wno-restrict -Wno-stringop-overflow)
endif()
# Contraction would make bits depend on the compiler's mood: a multiply-add is written as one.
set(WEFT_CODEGEN -ffp-contract=off -fno-math-errno)
set(WEFT_CUDA_CODEGEN -fmad=false)

# weft_options(<target>): warnings, code generation and sanitizers of every Weft target.
function(weft_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${WEFT_WARNINGS}> $<$<COMPILE_LANGUAGE:CXX>:${WEFT_CODEGEN}>
    $<$<COMPILE_LANGUAGE:CUDA>:${WEFT_CUDA_CODEGEN}>)
  # fmt 9 thinks that nvcc has no constexpr functions.
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  if(WEFT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${WEFT_SANITIZE})
    if(WEFT_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=undefined)
    endif()
  endif()
endfunction()

# weft_add_module(<name> SOURCES ... HEADERS ... [LIBS ...] [PRIVATE_LIBS ...])
function(weft_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;LIBS;PRIVATE_LIBS")
  set(line "${WEFT_LAYERS}")
  list(FILTER line INCLUDE REGEX "^${name}:")
  if(NOT line)
    message(FATAL_ERROR "module ${name} has no line in tools/layers.txt")
  endif()
  string(REGEX REPLACE "^[a-z]+:" "" deps "${line}")
  string(REGEX MATCHALL "[a-z]+" deps "${deps}")
  set(links "")
  foreach(dep IN LISTS deps)
    if(TARGET weft_${dep})
      list(APPEND links weft::${dep})
    endif()
  endforeach()
  add_library(weft_${name} STATIC ${arg_SOURCES})
  add_library(weft::${name} ALIAS weft_${name})
  weft_options(weft_${name})
  target_link_libraries(weft_${name} PUBLIC ${links} ${arg_LIBS} Threads::Threads PRIVATE ${arg_PRIVATE_LIBS})
  target_sources(weft_${name} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  set_target_properties(weft_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON EXPORT_NAME ${name})
endfunction()
