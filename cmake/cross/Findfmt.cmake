# SPDX-License-Identifier: Apache-2.0
# fmt for another machine: the headers, which need no library.
find_path(fmt_INCLUDE_DIR fmt/format.h)
mark_as_advanced(fmt_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(fmt REQUIRED_VARS fmt_INCLUDE_DIR)
if(fmt_FOUND AND NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_include_directories(fmt::fmt INTERFACE "${fmt_INCLUDE_DIR}")
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
endif()
