include(GoogleTest)

# weft_compile_test(<target>): what all test programs are compiled with. Most tests leave the work to the modules, so
# their own code is not optimised. A folder sets WEFT_OPTIMISE_TESTS where that would make its tests slow: they have
# loops over numbers of their own, or the modules work in inline functions of libraries, of JSON most of all, for which
# the linker takes the code that it meets first, and that is the test's.
function(weft_compile_test target)
  weft_options(${target})
  weft_optimise_lightly(${target})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  set(precompiled tests)
  if(NOT WEFT_OPTIMISE_TESTS)
    weft_leave_unoptimised(${target})
    set(precompiled unoptimised_tests)
  endif()
  weft_precompile(${target} ${precompiled} "${PROJECT_SOURCE_DIR}/cmake/precompiled.h" <gtest/gtest.h>)
endfunction()

# weft_add_test(<name> SOURCES ... [APART ...] LIBS ... [LABELS ...]): one GoogleTest binary, one ctest
# entry per TEST. SOURCES are compiled several at once, APART one by one: files that replace functions, or
# whose helpers have the names of others'. Real data is looked for in $WEFT_DATA, else ../shared/data beside
# the checkout.
function(weft_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;APART;LIBS;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)  # an empty value would vanish from the list of properties
  endif()
  add_executable(${name} ${arg_SOURCES} ${arg_APART})
  weft_compile_test(${name})
  weft_join_sources(${name})
  foreach(file IN LISTS arg_APART)
    set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  target_compile_definitions(${name} PRIVATE WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# The COST of tests that start processes and wait for them much of their time. ctest begins those of the highest
# cost, so that what is left for the end of a run keeps the cores busy; these left one idle for minutes there.
set(WEFT_COST_OF_WAITING 10)

# Of tests under mpirun. Open MPI keeps memory after MPI_Finalize and has unloaded the plugins that
# allocated it by then, so no suppression can name them; leaks are looked for in the other tests.
set(WEFT_MPI_TEST_ENVIRONMENT "")
if(WEFT_SANITIZE MATCHES "address")
  set(WEFT_MPI_TEST_ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1")
endif()

# weft_add_mpi_test(<name> RANKS 1 2 3 SOURCES ... LIBS ...): the binary (with its own main, which
# initialises MPI) under mpirun, one ctest entry per number of ranks.
function(weft_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "RANKS;SOURCES;LIBS;LABELS")
  if(NOT WEFT_ENABLE_MPI)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  weft_compile_test(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest)
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.ranks${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe --bind-to none
              ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks${ranks} PROPERTIES
      LABELS "mpi;${arg_LABELS}" TIMEOUT 120 COST ${WEFT_COST_OF_WAITING}
      ENVIRONMENT "${WEFT_MPI_TEST_ENVIRONMENT}")
  endforeach()
endfunction()
