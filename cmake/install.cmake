# SPDX-License-Identifier: Apache-2.0
# Installs the library, the modules of its backends, the command line and the package files for find_package(tilemamba).
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
