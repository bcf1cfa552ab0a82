# SPDX-License-Identifier: Apache-2.0
# The project as others use it. Run as: cmake -D CHECK=<which> -D SOURCE=<tree> -D BUILD=<its build folder> -D SCRATCH=<a folder>
# -D GENERATOR=... -D COMPILER=... -D LIBDIR=<where a prefix has libraries> -D BACKENDS=<members that must run> -P check.cmake
#
# If a tool is not there it says so in a line "*** SKIPPED: ...", at the end, after all that can be checked without the tool.

file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")

# must_succeed(COMMAND...) prints what the command said if it fails, and leaves it in `output`.
function(must_succeed)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code STREQUAL "0")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit code ${code} from ${command}\n${output}")
  endif()
  message(STATUS "${output}")
  set(output "${output}" PARENT_SCOPE)
endfunction()

# must_refuse(TEXT COMMAND...): the command fails and says TEXT (a regular expression).
function(must_refuse text)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(code STREQUAL "0" OR NOT output MATCHES "${text}")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit code ${code}, and not '${text}', from ${command}\n${output}")
  endif()
endfunction()

# skipped(TOOL WHAT): to be the last that a check says.
function(skipped tool what)
  message(STATUS "*** SKIPPED: ${tool} is not installed, so ${what} was not checked")
endfunction()

set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DTILEMAMBA_CUDA=OFF)
find_program(pkg_config pkg-config)
find_program(dpkg_deb dpkg-deb)
find_program(python NAMES python3)

# install_and_move(BUILD): installs to one folder and moves all of it to another, SCRATCH/moved, in which nothing may know where
# it was built or installed before.
function(install_and_move build)
  must_succeed("${CMAKE_COMMAND}" --install "${build}" --prefix "${SCRATCH}/first")
  file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")
  file(GLOB_RECURSE installed "${SCRATCH}/moved/*")
  foreach(file IN LISTS installed)
    file(READ "${file}" bytes HEX)
    foreach(folder IN ITEMS "${SOURCE}" "${build}" "${SCRATCH}/first")
      string(HEX "${folder}/" folder_bytes)
      string(FIND "${bytes}" "${folder_bytes}" place)
      if(NOT place EQUAL -1)
        message(FATAL_ERROR "${file} is installed and must not name ${folder}")
      endif()
    endforeach()
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${SCRATCH}/moved")
    string(TOLOWER "${file}" lower)
    if(lower MATCHES "kokkos" AND NOT file MATCHES "/tilemamba_backend_kokkos[^/]*\\.so$")
      message(FATAL_ERROR "Kokkos must not be installed, but there is ${file}")
    endif()
  endforeach()
endfunction()

# use_with_cmake(PREFIX): a project finds what is installed there, builds and runs.
function(use_with_cmake prefix)
  set(build "${SCRATCH}/consumer")
  must_succeed(${configure} -S "${SOURCE}/tests/package/consumer" -B "${build}" "-DCMAKE_PREFIX_PATH=${prefix}")
  must_succeed("${CMAKE_COMMAND}" --build "${build}")
  must_succeed("${build}/consumer" ${BACKENDS})
endfunction()

# use_with_pkg_config(PREFIX KIND): the same with nothing but a compiler. A program of the SHARED library is told by the
# environment where that is; one of the STATIC library needs no telling.
function(use_with_pkg_config prefix kind)
  set(environment "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig")
  set(static "")
  if(kind STREQUAL "STATIC")
    set(static --static)
  endif()
  must_succeed(${environment} "${pkg_config}" --cflags --libs ${static} tilemamba)
  separate_arguments(flags UNIX_COMMAND "${output}")
  must_succeed("${COMPILER}" -std=c++20 "${SOURCE}/tests/package/consumer/main.cpp" -o "${SCRATCH}/plain" ${flags})
  if(kind STREQUAL "SHARED")
    list(APPEND environment "LD_LIBRARY_PATH=${prefix}/${LIBDIR}")
  endif()
  must_succeed(${environment} "${SCRATCH}/plain" ${BACKENDS})
endfunction()

# run_command_line(PREFIX): the installed command line finds its library, and that its modules.
function(run_command_line prefix)
  if(EXISTS "${BUILD}/bin/tilemamba")
    must_succeed("${prefix}/bin/tilemamba" info)
    foreach(backend IN LISTS BACKENDS)
      if(NOT output MATCHES "${backend} +yes")
        message(FATAL_ERROR "${prefix}/bin/tilemamba cannot run ${backend}")
      endif()
    endforeach()
    # What tries backends that nobody has run is beside the modules, and runs there.
    file(GLOB modules "${prefix}/${LIBDIR}/tilemamba/tilemamba_backend_kokkos.*.so")
    foreach(module IN LISTS modules)
      if(module MATCHES "kokkos\\.(x86-64|armv8-a)\\.so$")
        must_succeed("${prefix}/${LIBDIR}/tilemamba/tilemamba_prove" "${module}" kokkos-serial cpu fused q64 f32)
      endif()
    endforeach()
  endif()
endfunction()

if(CHECK STREQUAL "installed")
  install_and_move("${BUILD}")
  run_command_line("${SCRATCH}/moved")
  use_with_cmake("${SCRATCH}/moved")
  if(pkg_config)
    use_with_pkg_config("${SCRATCH}/moved" SHARED)
  else()
    skipped(pkg-config "tilemamba.pc")
  endif()
elseif(CHECK STREQUAL "static")
  # The library alone; the modules are those of any build, since they do not link to it.
  must_succeed(
    ${configure} -S "${SOURCE}" -B "${SCRATCH}/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=${LIBDIR}
    -DBUILD_SHARED_LIBS=OFF -DTILEMAMBA_KOKKOS=OFF -DTILEMAMBA_TESTS=OFF -DTILEMAMBA_TOOLS=OFF
  )
  must_succeed("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
  install_and_move("${SCRATCH}/build")
  file(COPY "${BUILD}/lib/tilemamba" DESTINATION "${SCRATCH}/moved/${LIBDIR}")
  use_with_cmake("${SCRATCH}/moved")
  # The program may be installed elsewhere with modules of its own, and need not be started by its path.
  file(COPY "${BUILD}/lib/tilemamba" DESTINATION "${SCRATCH}/elsewhere/lib")
  file(COPY "${SCRATCH}/consumer/consumer" DESTINATION "${SCRATCH}/elsewhere/bin")
  file(REMOVE_RECURSE "${SCRATCH}/moved/${LIBDIR}/tilemamba")
  must_succeed("${CMAKE_COMMAND}" -E env "PATH=${SCRATCH}/elsewhere/bin" consumer ${BACKENDS})
  file(RENAME "${SCRATCH}/elsewhere/lib/tilemamba" "${SCRATCH}/moved/${LIBDIR}/tilemamba")
  if(pkg_config)
    use_with_pkg_config("${SCRATCH}/moved" STATIC)
  else()
    skipped(pkg-config "tilemamba.pc for the static library")
  endif()
elseif(CHECK STREQUAL "fetched")
  # Shared, then static: the modules are the same. They take the Kokkos that BUILD has made for its own, and are not optimised:
  # that is most of the time.
  foreach(shared IN ITEMS ON OFF)
    must_succeed(
      ${configure} -S "${SOURCE}/tests/package/fetching" -B "${SCRATCH}/build" "-DTILEMAMBA_SOURCE=${SOURCE}"
      "-DCMAKE_PREFIX_PATH=${BUILD}/_deps/tilemamba_kokkos_host" -DCMAKE_BUILD_TYPE=Debug -DBUILD_SHARED_LIBS=${shared}
    )
    # Whoever needs the library needs its modules.
    must_succeed("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target consumer)
    must_succeed("${SCRATCH}/build/consumer" ${BACKENDS})
  endforeach()
elseif(CHECK STREQUAL "archive")
  must_succeed("${CMAKE_CPACK_COMMAND}" --config "${BUILD}/CPackConfig.cmake" -G TGZ -B "${SCRATCH}")
  file(GLOB archive "${SCRATCH}/tilemamba-*.tar.gz")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${SCRATCH}/unpacked")
  file(GLOB prefix "${SCRATCH}/unpacked/tilemamba-*")
  run_command_line("${prefix}")
  use_with_cmake("${prefix}")
elseif(CHECK STREQUAL "deb")
  if(NOT dpkg_deb)
    skipped(dpkg-deb "the Debian package")
    return()
  endif()
  must_succeed("${CMAKE_CPACK_COMMAND}" --config "${BUILD}/CPackConfig.cmake" -G DEB -B "${SCRATCH}")
  file(GLOB package "${SCRATCH}/tilemamba_*.deb")
  must_succeed("${dpkg_deb}" --info "${package}")
  foreach(field IN ITEMS "Package: tilemamba" "Section: libs" "Maintainer: [^\n]+@" "Description: ")
    if(NOT output MATCHES "\n *${field}")
      message(FATAL_ERROR "the package must have a field ${field}")
    endif()
  endforeach()
  must_succeed("${dpkg_deb}" --contents "${package}")
  if(NOT output MATCHES "root/root" OR output MATCHES "(${SCRATCH}|/local/)")
    message(FATAL_ERROR "the package's files must be root's and lie in /usr")
  endif()
  must_succeed("${dpkg_deb}" --extract "${package}" "${SCRATCH}/extracted")
  run_command_line("${SCRATCH}/extracted/usr")
  use_with_cmake("${SCRATCH}/extracted/usr")
  foreach(tool IN ITEMS dpkg-shlibdeps file)
    find_program(${tool} ${tool})
    if(NOT ${tool})
      skipped(${tool} "what the Debian package depends on")
      return()
    endif()
  endforeach()
  must_succeed("${dpkg_deb}" --field "${package}" Depends)
  if(NOT output MATCHES "libstdc\\+\\+6 \\(>= ")
    message(FATAL_ERROR "the package must depend on libstdc++6 in some version, but depends on ${output}")
  endif()
elseif(CHECK STREQUAL "recipes")
  if(NOT python)
    skipped(python3 "what is in packaging/")
    return()
  endif()
  must_succeed("${python}" "${SOURCE}/tests/package/check_recipes.py" "${SOURCE}")
elseif(CHECK STREQUAL "enclosed")
  must_succeed(${configure} -S "${SOURCE}/tests/package/enclosing" -B "${SCRATCH}/build" "-DTILEMAMBA_SOURCE=${SOURCE}")
elseif(CHECK STREQUAL "options")
  set(configure ${configure} -S "${SOURCE}" -B "${SCRATCH}/build" -DTILEMAMBA_TESTS=OFF -DTILEMAMBA_TOOLS=OFF)
  foreach(family IN ITEMS CUDA HIP)
    string(TOLOWER "${family}" lower)
    if(NOT EXISTS "${SOURCE}/backends/${lower}/CMakeLists.txt")
      must_refuse("TILEMAMBA_${family} is ON, but this version of tilemamba has no ${lower} backend"
                  ${configure} -DTILEMAMBA_KOKKOS=OFF -DTILEMAMBA_${family}=ON
      )
    endif()
    must_refuse("TILEMAMBA_${family} is 'maybe'; it must be AUTO, ON or OFF"
                ${configure} -DTILEMAMBA_KOKKOS=OFF -DTILEMAMBA_${family}=maybe
    )
    list(APPEND configure -DTILEMAMBA_${family}=AUTO)
  endforeach()
  # A Kokkos that cannot be had: AUTO goes on without it, ON does not.
  set(nowhere -DFETCHCONTENT_SOURCE_DIR_KOKKOS=${SCRATCH}/nowhere)
  must_succeed(${configure} -DTILEMAMBA_KOKKOS=AUTO ${nowhere})
  must_refuse("TILEMAMBA_KOKKOS is ON, but FETCHCONTENT_SOURCE_DIR_KOKKOS holds no Kokkos"
              ${configure} -DTILEMAMBA_KOKKOS=ON ${nowhere}
  )
else()
  message(FATAL_ERROR "no check is called '${CHECK}'")
endif()
