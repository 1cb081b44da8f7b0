# Toolchain: zig's clang, which links against a glibc older than the machine's, for this processor or another one.
#
#     ZIG=/path/to/zig ZIG_TARGET=x86_64-linux-gnu.2.17 cmake -DCMAKE_TOOLCHAIN_FILE=cmake/zig.cmake ...
#
# `make wheel` uses it. libc++ and the unwinder become part of the library, as zig always links them.
set(zig "$ENV{ZIG}")
set(target "$ENV{ZIG_TARGET}")
if(NOT zig OR NOT target MATCHES "^([^-]+)-linux-gnu")
  message(FATAL_ERROR "set ZIG to zig's path and ZIG_TARGET to a target such as x86_64-linux-gnu.2.17")
endif()
set(processor "${CMAKE_MATCH_1}")

execute_process(COMMAND "${zig}" version OUTPUT_VARIABLE zig_version OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
# For the bill of materials (sbom.cmake).
set(QUADRAT_STATIC_LIBRARIES "libc++ and libunwind of zig|${zig_version}|Apache-2.0 WITH LLVM-exception"
                             "compiler_rt of zig|${zig_version}|MIT")
# Nothing of the C++ library in a module is there for other modules. Debugging information is left out.
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map")
set(CMAKE_CXX_COMPILER "${zig};c++;-target;${target}")
# pybind11 asks whether link-time optimisation works, and nothing here uses it: zig would first build its libraries for it.
set(HAS_FLTO_THIN OFF CACHE INTERNAL "")
set(HAS_FLTO OFF CACHE INTERNAL "")
# Archives of any processor's objects, which the machine's own ar may not be able to list.
set(CMAKE_CXX_ARCHIVE_CREATE "\"${zig}\" ar qcs <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "")

if(NOT processor STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR "${processor}")
elseif(processor STREQUAL "x86_64")
  # zig's run time says of every processor that it has no AVX, so that the slowest clone of each kernel would run
  # (csrc/kernels/simd.hpp). GCC's finds out; the symbols are the same.
  find_program(gcc gcc REQUIRED)
  execute_process(COMMAND "${gcc}" -print-libgcc-file-name OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  set(CMAKE_CXX_STANDARD_LIBRARIES "\"${libgcc}\"")
  execute_process(COMMAND "${gcc}" -dumpfullversion OUTPUT_VARIABLE gcc_version OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND QUADRAT_STATIC_LIBRARIES "libgcc|${gcc_version}|GPL-3.0-or-later WITH GCC-exception-3.1")
endif()
