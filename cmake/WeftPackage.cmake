# The library that other projects link, weft::weft: the objects of all modules in one archive, or with
# BUILD_SHARED_LIBS in one shared library; and the rules of `cmake --install`. The program and the tests link
# the modules themselves. Reasons: docs/adr/0014-one-library.md.

# Sanitizers are for the tests; whoever links an archive compiled with them would have to know.
if(WEFT_SANITIZE)
  return()
endif()

set(objects "")
foreach(module IN LISTS WEFT_MODULES)
  if(TARGET weft_${module})
    list(APPEND objects $<TARGET_OBJECTS:weft_${module}>)
  endif()
endforeach()
add_library(weft_library ${objects})
add_library(weft::weft ALIAS weft_library)
get_property(headers GLOBAL PROPERTY WEFT_HEADERS)
get_property(libs GLOBAL PROPERTY WEFT_LIBS)
get_property(private_libs GLOBAL PROPERTY WEFT_PRIVATE_LIBS)
list(REMOVE_DUPLICATES libs)
list(REMOVE_DUPLICATES private_libs)
# It is headers alone, and those of Weft include none of it.
list(REMOVE_ITEM private_libs nlohmann_json::nlohmann_json)
target_sources(weft_library PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers})
target_link_libraries(weft_library PUBLIC ${libs} Threads::Threads PRIVATE ${private_libs})
if(WEFT_ENABLE_CUDA)
  target_link_libraries(weft_library PRIVATE CUDA::cudart_static)
endif()
# What inline functions of headers give is promised to the bit too, so they are compiled alike everywhere.
target_compile_options(weft_library INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_compile_features(weft_library PUBLIC cxx_std_20)
set_target_properties(weft_library PROPERTIES
  OUTPUT_NAME weft EXPORT_NAME weft LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
  # Before 1.0 a minor version may break what links it.
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(BUILD_SHARED_LIBS)
  # Its calls of its own functions stay inside, inline ones included: an application that compiled a header
  # with other flags cannot change what the library computes.
  target_link_options(weft_library PRIVATE LINKER:-z,defs LINKER:-Bsymbolic-functions)
endif()

if(NOT WEFT_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
configure_package_config_file(cmake/weft-config.cmake.in "${PROJECT_BINARY_DIR}/weft-config.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weft-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(TARGETS weft_library EXPORT weftTargets FILE_SET HEADERS)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION "${package_dir}")
install(FILES
  "${PROJECT_BINARY_DIR}/weft-config.cmake" "${PROJECT_BINARY_DIR}/weft-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindDNNL.cmake"
  DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(TARGET weft)
  install(TARGETS weft)
endif()
