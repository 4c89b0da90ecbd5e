# One library per folder of weft/. What a module links is its line of tools/layers.txt, the file
# that tools/check_layers.py reads too, so a forbidden dependency fails to link and is named.

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tools/layers.txt")
file(STRINGS "${PROJECT_SOURCE_DIR}/tools/layers.txt" WEFT_LAYERS REGEX "^[a-z]+:")
set(WEFT_MODULES "${WEFT_LAYERS}")
list(TRANSFORM WEFT_MODULES REPLACE ":.*$" "")

set(WEFT_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False in GCC 12 with std::string and fmt (its PR 105329 and 105651). The third depends on lengths: it
  # came with WEFT_SOURCE_DIR in a folder whose name has 16 letters.
  list(APPEND WEFT_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
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
      # AddressSanitizer finds null pointers and objects that are too small by itself; without these checks
      # a build takes three quarters of the time. GCC takes as much again for addresses that are not aligned
      # and pointers that overflow, which clang looks for in the fuzz targets.
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=undefined
        -fno-sanitize=null,vptr,object-size$<$<CXX_COMPILER_ID:GNU>:,alignment,pointer-overflow>)
    endif()
  endif()
endfunction()

# weft_optimise_lightly(<target>): a release build spends no time on code that no step runs: reading
# and printing, arguments, tests. The kernels they call are optimised where they are defined.
function(weft_optimise_lightly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()

# weft_leave_unoptimised(<target>): for code whose own work takes no time beside its compilation.
function(weft_leave_unoptimised target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endfunction()

# weft_position_independent(<target>): the code of modules goes into programs, archives and shared libraries
# alike, so it is compiled once for all of them. GCC may still inline functions into others of their file:
# no library takes the place of a module's function at run time.
function(weft_position_independent target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endfunction()

# weft_precompile(<target> <set> <header>...): has the compiler read headers that most files of a set include
# once per build folder. All targets of a set need the same flags; the code of the sets modules and cold_modules is
# position-independent. The preset arm does without, so that a source file still has to include what it uses.
function(weft_precompile target set)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  if(NOT TARGET weft_precompiled_${set})
    set(empty "${PROJECT_BINARY_DIR}/precompiled/${set}.cc")
    file(CONFIGURE OUTPUT "${empty}" CONTENT "")
    add_library(weft_precompiled_${set} OBJECT "${empty}")
    weft_options(weft_precompiled_${set})
    if(set MATCHES "modules$")
      weft_position_independent(weft_precompiled_${set})
    endif()
    if(NOT set STREQUAL "modules")
      weft_optimise_lightly(weft_precompiled_${set})
    endif()
    target_link_libraries(weft_precompiled_${set} PRIVATE fmt::fmt Threads::Threads)
    if(set MATCHES "^unoptimised_")
      weft_leave_unoptimised(weft_precompiled_${set})
    endif()
    if(set MATCHES "tests$")
      target_link_libraries(weft_precompiled_${set} PRIVATE GTest::gtest)
    endif()
    target_precompile_headers(weft_precompiled_${set} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_precompiled_${set})
endfunction()

# weft_join_sources(<target>): the compiler reads sixteen files of a target at once, and what they include
# and instantiate once for all of them. It halves the time of a build. Names in unnamed namespaces
# therefore differ within a module. The preset dev compiles every file by itself: after a change of one
# file it has less to do, and it shows that each file includes what it uses.
option(WEFT_JOIN_SOURCES "Compile several source files of a module at once" ON)
function(weft_join_sources target)
  if(WEFT_JOIN_SOURCES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # To GCC the file it compiles is not the one that has both the unnamed namespace and the class.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
    endif()
  endif()
endfunction()

set(WEFT_OPTIMISED_MODULES "" CACHE STRING "Modules to optimise, where the others are not; empty: all")

# weft_add_module(<name> [COLD] [APART] SOURCES ... HEADERS ... [LIBS ...] [PRIVATE_LIBS ...])
# COLD is for modules none of whose code runs in a training step, APART for those whose files cannot be
# joined. Headers and libraries of all modules are also noted for WeftPackage.cmake, in the global properties
# WEFT_HEADERS, WEFT_LIBS and WEFT_PRIVATE_LIBS.
function(weft_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD;APART" "" "SOURCES;HEADERS;LIBS;PRIVATE_LIBS")
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
  weft_position_independent(weft_${name})
  if(NOT arg_APART)
    weft_join_sources(weft_${name})
  endif()
  set(precompiled modules)
  if(arg_COLD)
    weft_optimise_lightly(weft_${name})
    set(precompiled cold_modules)
  endif()
  if(WEFT_OPTIMISED_MODULES AND NOT name IN_LIST WEFT_OPTIMISED_MODULES)
    weft_leave_unoptimised(weft_${name})
    set(precompiled unoptimised_modules)
  endif()
  weft_precompile(weft_${name} ${precompiled} "${PROJECT_SOURCE_DIR}/cmake/precompiled.h")
  target_link_libraries(weft_${name} PUBLIC ${links} ${arg_LIBS} Threads::Threads PRIVATE ${arg_PRIVATE_LIBS})
  target_sources(weft_${name} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  set_target_properties(weft_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  list(TRANSFORM arg_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL APPEND PROPERTY WEFT_HEADERS ${arg_HEADERS})
  set_property(GLOBAL APPEND PROPERTY WEFT_LIBS ${arg_LIBS})
  set_property(GLOBAL APPEND PROPERTY WEFT_PRIVATE_LIBS ${arg_PRIVATE_LIBS})
endfunction()
