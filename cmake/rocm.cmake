# SPDX-License-Identifier: Apache-2.0
# What compiles for AMD GPUs: ROCm's clang, or Debian's with the packages libamdhip64-dev and rocm-device-libs.

# tilemamba_find_rocm(OUT WHY architecture...): the folder of a ROCm installation for these architectures in OUT, and
# TILEMAMBA_HIP_COMPILER, _INCLUDE and _LIBRARY; or an empty OUT, and in WHY the reason.
function(tilemamba_find_rocm out why)
  set(${out} "" PARENT_SCOPE)
  find_program(
    TILEMAMBA_HIP_COMPILER
    NAMES amdclang++ clang++-19
    HINTS ENV ROCM_PATH /opt/rocm
    PATH_SUFFIXES bin llvm/bin
    DOC "A clang that compiles HIP: ROCm's, or Debian's clang++-19"
  )
  find_path(
    TILEMAMBA_HIP_INCLUDE hip/hip_runtime_api.h
    HINTS ENV ROCM_PATH /opt/rocm
    PATH_SUFFIXES include
  )
  find_library(
    TILEMAMBA_HIP_LIBRARY amdhip64
    HINTS ENV ROCM_PATH /opt/rocm
    PATH_SUFFIXES lib
  )
  mark_as_advanced(TILEMAMBA_HIP_COMPILER TILEMAMBA_HIP_INCLUDE TILEMAMBA_HIP_LIBRARY)
  foreach(piece IN ITEMS COMPILER INCLUDE LIBRARY)
    if(NOT TILEMAMBA_HIP_${piece})
      set(${why} "there is no ROCm (/opt/rocm, ROCM_PATH) and no clang++-19 with libamdhip64-dev and rocm-device-libs" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  # A ROCm installation is one folder; Debian's becomes one by links.
  cmake_path(GET TILEMAMBA_HIP_INCLUDE PARENT_PATH folder)
  if(NOT IS_DIRECTORY "${folder}/amdgcn/bitcode")
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/rocm")
    execute_process(
      COMMAND "${PROJECT_SOURCE_DIR}/cmake/stage_rocm.sh" "${folder}" "${TILEMAMBA_HIP_COMPILER}" ${ARGN}
      RESULT_VARIABLE failed
      ERROR_VARIABLE error
    )
    if(failed)
      set(${why} "the folder that clang wants could not be made: ${error}" PARENT_SCOPE)
      return()
    endif()
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()
