# Compiles for aarch64 against the sysroot that scripts/cross-aarch64 makes; tests run under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

# The cache may already hold what the first look has found: CMake reads this file once more for each of its own tests.
if(NOT DEFINED ENV{CENOTE_SYSROOT})
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/cross-aarch64 --sysroot
    OUTPUT_VARIABLE cenote_sysroot OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(ENV{CENOTE_SYSROOT} ${cenote_sysroot})
endif()
set(CMAKE_SYSROOT $ENV{CENOTE_SYSROOT})

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
