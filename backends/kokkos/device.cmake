# SPDX-License-Identifier: Apache-2.0
# A second module: the same backend on a GPU, over a Kokkos of its own, for the one architecture that TILEMAMBA_KOKKOS_DEVICE
# names. Compiled by the vendor's compiler whatever compiles the rest.

set(architectures
    sm_80=AMPERE80
    sm_86=AMPERE86
    sm_89=ADA89
    sm_90=HOPPER90
    sm_100=BLACKWELL100
    sm_120=BLACKWELL120
    gfx90a=AMD_GFX90A
    gfx942=AMD_GFX942
    gfx1100=AMD_GFX1100
)
set(TILEMAMBA_KOKKOS_DEVICE
    ""
    CACHE STRING "Build the Kokkos backend for a GPU, too: sm_80, 86, 89, 90, 100, 120, gfx90a, gfx942 or gfx1100"
)
set(device "${TILEMAMBA_KOKKOS_DEVICE}")
if(NOT device)
  return()
endif()
set(known ${architectures})
list(FILTER known INCLUDE REGEX "^${device}=")
if(NOT known)
  list(TRANSFORM architectures REPLACE "=.*" "")
  list(JOIN architectures ", " architectures)
  message(FATAL_ERROR "TILEMAMBA_KOKKOS_DEVICE is '${device}'; it takes one of ${architectures}")
endif()
string(REGEX REPLACE "^.*=" "" kokkos_name "${known}")

set(compiled "${CMAKE_CURRENT_BINARY_DIR}/device.o")
set(flags -std=c++20 -O3 "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/core/include" "-DTILEMAMBA_VERSION=\"${PROJECT_VERSION}\"")
if(device MATCHES "^sm_([0-9]+)$")
  set(space cuda)
  find_program(
    TILEMAMBA_KOKKOS_NVCC nvcc
    HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda
    PATH_SUFFIXES bin
  )
  mark_as_advanced(TILEMAMBA_KOKKOS_NVCC)
  if(NOT TILEMAMBA_KOKKOS_NVCC)
    message(FATAL_ERROR "TILEMAMBA_KOKKOS_DEVICE is ${device}, but nvcc was not found")
  endif()
  set(old_calls "${CMAKE_CURRENT_SOURCE_DIR}/cuda13.hpp")
  set(arguments
      -DKokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=ON
      "-DCMAKE_CUDA_COMPILER=${TILEMAMBA_KOKKOS_NVCC}"
      "-DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CXX_COMPILER}"
      "-DCMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
      -DCMAKE_CUDA_VISIBILITY_PRESET=hidden
      # The language level by hand: CMake's own does not reach all of Kokkos's files.
      "-DCMAKE_CUDA_FLAGS=-std=c++20 -include ${old_calls}"
  )
  list(APPEND flags -x cu -arch=${device} -ccbin "${CMAKE_CXX_COMPILER}" --expt-relaxed-constexpr --extended-lambda -Xcompiler
       -fPIC,-fvisibility=hidden -include "${old_calls}" -DTILEMAMBA_KOKKOS_ARCHITECTURE=${CMAKE_MATCH_1}
  )
  if(TILEMAMBA_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  set(compiler "${TILEMAMBA_KOKKOS_NVCC}")
  cmake_path(GET compiler PARENT_PATH toolkit)
  cmake_path(GET toolkit PARENT_PATH toolkit)
  find_library(TILEMAMBA_KOKKOS_CUDART cudart_static HINTS "${toolkit}" PATH_SUFFIXES lib64 lib REQUIRED)
  find_library(TILEMAMBA_KOKKOS_CUDA cuda HINTS "${toolkit}" PATH_SUFFIXES lib64/stubs lib/stubs lib64 lib REQUIRED)
  mark_as_advanced(TILEMAMBA_KOKKOS_CUDART TILEMAMBA_KOKKOS_CUDA)
  set(libraries "${TILEMAMBA_KOKKOS_CUDART}" "${TILEMAMBA_KOKKOS_CUDA}" ${CMAKE_DL_LIBS} rt)
else()
  set(space hip)
  tilemamba_find_rocm(rocm why ${device})
  if(NOT rocm)
    message(FATAL_ERROR "TILEMAMBA_KOKKOS_DEVICE is ${device}, but ${why}")
  endif()
  set(compiler "${TILEMAMBA_HIP_COMPILER}")
  set(arguments "-DCMAKE_CXX_COMPILER=${compiler}" "-DCMAKE_CXX_FLAGS=--rocm-path=${rocm}" -DKokkos_ENABLE_ROCTHRUST=OFF)
  list(APPEND flags -x hip --offload-arch=${device} "--rocm-path=${rocm}" -fPIC -fvisibility=hidden -Wall -Wextra
       "-DTILEMAMBA_KOKKOS_ARCHITECTURE=\"${device}\""
  )
  if(TILEMAMBA_WERROR)
    list(APPEND flags -Werror)
  endif()
  set(libraries "${TILEMAMBA_HIP_LIBRARY}")
endif()

string(TOUPPER ${space} upper)
tilemamba_build_kokkos(
  tilemamba_kokkos_${space} SPACES SERIAL ${upper} CMAKE_ARGS -DKokkos_ARCH_${kokkos_name}=ON ${arguments} RESULT description
)
if(NOT TARGET tilemamba_kokkos_${space})
  message(FATAL_ERROR "TILEMAMBA_KOKKOS_DEVICE is ${device}, but ${description}")
endif()
target_link_libraries(tilemamba_kokkos_${space} INTERFACE ${libraries})
add_custom_command(
  OUTPUT "${compiled}"
  COMMAND
    ${CMAKE_CXX_COMPILER_LAUNCHER} "${compiler}" ${flags} -isystem
    "$<JOIN:$<TARGET_PROPERTY:tilemamba_kokkos_${space},INTERFACE_INCLUDE_DIRECTORIES>,;-isystem;>" -MD -MF "${compiled}.d" -MT
    "${compiled}" -c "${CMAKE_CURRENT_SOURCE_DIR}/device.cpp" -o "${compiled}"
  DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/device.cpp" tilemamba_kokkos_${space}_build
  DEPFILE "${compiled}.d"
  COMMENT "Building the Kokkos backend for ${device}"
  COMMAND_EXPAND_LISTS VERBATIM
)
# The tests insist on a backend only where there is a device.
set(members "")
set(device_file_cuda /dev/nvidiactl)
set(device_file_hip /dev/kfd)
if(EXISTS ${device_file_${space}})
  set(members kokkos-${space})
endif()
tilemamba_add_module(
  kokkos_${space}
  MEMBERS ${members}
  SOURCES "${compiled}"
  LINK tilemamba_kokkos_${space}
)
set_target_properties(tilemamba_backend_kokkos_${space} PROPERTIES LINKER_LANGUAGE CXX)
set(state "compiled, never run on a device")
if(device STREQUAL sm_90)
  set(state "run on an H200")
endif()
tilemamba_summary("backend kokkos" "${space} for ${device}, with ${description}: ${state}")
