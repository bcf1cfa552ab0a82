# SPDX-License-Identifier: Apache-2.0
# examples/c with an installed tilemamba, built by CMake and by pkg-config. Run as: cmake -D SOURCE=<tree> -D BUILD=<its build folder>
# -D SCRATCH=<a folder> -D GENERATOR=... -D COMPILER=<for C> -P check_c_example.cmake

# must_succeed(OUTPUT COMMAND...): a variable for what the command prints, which is shown if it fails.
function(must_succeed output)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code STREQUAL "0")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit code ${code} from ${command}\n${text}")
  endif()
  string(STRIP "${text}" text)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
must_succeed(output "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/installed")
must_succeed(
  output "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_C_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${SCRATCH}/installed" -S
  "${SOURCE}/examples/c" -B "${SCRATCH}/build"
)
must_succeed(output "${CMAKE_COMMAND}" --build "${SCRATCH}/build")
must_succeed(output "${SCRATCH}/build/example")
message(STATUS "by CMake: ${output}")

find_program(pkg_config pkg-config)
if(NOT pkg_config)
  message(STATUS "*** SKIPPED: pkg-config is not installed, so the example was not linked by it ***")
  return()
endif()
file(GLOB_RECURSE package "${SCRATCH}/installed/*/tilemamba.pc")
cmake_path(GET package PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} "${folder}")
must_succeed(flags "${pkg_config}" --cflags --libs tilemamba)
separate_arguments(flags UNIX_COMMAND "${flags}")
must_succeed(output "${COMPILER}" "${SOURCE}/examples/c/main.c" ${flags} -o "${SCRATCH}/example")
cmake_path(GET folder PARENT_PATH libraries)
set(ENV{LD_LIBRARY_PATH} "${libraries}")
must_succeed(output "${SCRATCH}/example")
message(STATUS "by pkg-config: ${output}")
