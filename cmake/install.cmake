# SPDX-License-Identifier: Apache-2.0
# Installs the library, the modules of its backends, the command line and the package files for find_package(tilemamba) and
# for pkg-config.
# The tree can be moved: everything finds its neighbours from where it is itself.

include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/tilemamba")

install(
  TARGETS tilemamba
  EXPORT tilemamba_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
)
get_property(modules GLOBAL PROPERTY TILEMAMBA_MODULES)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/tilemamba")
endif()
if(TILEMAMBA_TOOLS)
  file(RELATIVE_PATH bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set_target_properties(tilemamba_command_line PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS tilemamba_command_line RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(TARGETS tilemamba_prove RUNTIME DESTINATION "${CMAKE_INSTALL_LIBDIR}/tilemamba")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/tilemamba" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(
  EXPORT tilemamba_targets
  NAMESPACE tilemamba::
  DESTINATION "${package_folder}"
)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/tilemamba-config.cmake.in" "${PROJECT_BINARY_DIR}/tilemamba-config.cmake"
  INSTALL_DESTINATION "${package_folder}"
)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tilemamba-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tilemamba-config.cmake" "${PROJECT_BINARY_DIR}/tilemamba-config-version.cmake"
        DESTINATION "${package_folder}"
)

file(RELATIVE_PATH pkgconfig_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix "${pkgconfig_to_prefix}")
cmake_path(APPEND pkgconfig_libdir "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
cmake_path(APPEND pkgconfig_includedir "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
set(pkgconfig_rpath "")
get_target_property(type tilemamba TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  # Where the program finds the modules; see core/CMakeLists.txt.
  set(pkgconfig_rpath "-Wl,-rpath,\${libdir} ")
endif()
# Of what the C++ compiler adds by itself only what a C compiler would not.
set(pkgconfig_private ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER pkgconfig_private INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
list(APPEND pkgconfig_private ${CMAKE_DL_LIBS})
list(REMOVE_DUPLICATES pkgconfig_private)
list(TRANSFORM pkgconfig_private PREPEND "-l")
list(JOIN pkgconfig_private " " pkgconfig_private)
string(APPEND pkgconfig_private " -pthread")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tilemamba.pc.in" "${PROJECT_BINARY_DIR}/tilemamba.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tilemamba.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(PROJECT_IS_TOP_LEVEL)
  include(pack)
endif()
