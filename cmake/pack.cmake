# SPDX-License-Identifier: Apache-2.0
# What cpack makes of an installation: an archive that can be unpacked anywhere and, where dpkg is there, a Debian package.

set(CPACK_GENERATOR TGZ)
set(CPACK_SYSTEM_NAME "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_CONTACT "the tilemamba authors <tilemamba@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION "The library with the modules of its backends, its headers and the command line.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

find_program(TILEMAMBA_DPKG dpkg)
find_program(TILEMAMBA_DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(TILEMAMBA_FILE file)
mark_as_advanced(TILEMAMBA_DPKG TILEMAMBA_DPKG_SHLIBDEPS TILEMAMBA_FILE)
if(TILEMAMBA_DPKG)
  list(APPEND CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  # What it depends on is found out with both.
  if(TILEMAMBA_DPKG_SHLIBDEPS AND TILEMAMBA_FILE)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  endif()
endif()

set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_IGNORE_FILES "/\\.git" "/build/" "/\\.cache/")
include(CPack)
