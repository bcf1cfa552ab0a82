# SPDX-License-Identifier: Apache-2.0
# What every target of this project has in common.

# tilemamba_target(TARGET): language level, version, warnings, hidden symbols, sanitizers, the project's root as include folder.
function(tilemamba_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON
               ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
               LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
               RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
  )
  target_include_directories(
    ${target} PRIVATE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include>"
  )
  target_compile_definitions(${target} PRIVATE TILEMAMBA_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wvla)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlaps in `"text" + std::string` that are not there (its bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(TILEMAMBA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  tilemamba_sanitize(${target})
endfunction()

# tilemamba_sanitize(TARGET): under TILEMAMBA_SANITIZE, with the sanitizers; for a target of any language.
function(tilemamba_sanitize target)
  if(NOT TILEMAMBA_SANITIZE)
    return()
  endif()
  # A finding ends the process, so that no test can pass over it.
  target_compile_options(
    ${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
  )
  target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.cpp")
  endif()
endfunction()
