# Cross-compiles Weft's modules for 64-bit Arm on Debian (package g++-aarch64-linux-gnu). The host's
# libraries are found for their headers: modules are compiled and archived, nothing is linked.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Behind all others, so that the C library's headers are the target's.
set(CMAKE_C_FLAGS_INIT "-idirafter /usr/include")
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include")

# Packages are looked for where the host has them. CMake finds out the compiler's own folder inside
# project(), so it is set behind that: this file is included there a second time.
if(CMAKE_CXX_COMPILER_LOADED)
  execute_process(COMMAND gcc -print-multiarch
    OUTPUT_VARIABLE CMAKE_LIBRARY_ARCHITECTURE OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:/usr/share/pkgconfig")
else()
  set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")
endif()
