# SPDX-License-Identifier: Apache-2.0
# Toolchain file for 64-bit ARM Linux with Debian's cross compiler, programs run under an emulator.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

# Debian's cross compilers also look in /usr/include, so what is headers only serves this target too. Of fmt and GoogleTest the host
# has libraries: the modules in this folder take fmt's headers alone and compile GoogleTest from its sources.
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}/cross")
