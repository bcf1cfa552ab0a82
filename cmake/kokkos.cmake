# SPDX-License-Identifier: Apache-2.0
# Where Kokkos comes from, and how a private copy of it is built.
#
#   tilemamba_kokkos(TARGET SPACES space... RESULT variable)            an installed one if it is fit, else a private one
#   tilemamba_build_kokkos(TARGET SPACES space... [SHARED] [CMAKE_ARGS arg...] RESULT variable)     always a private one
#
# Both make TARGET, an interface target to link to; if Kokkos cannot be had there is no TARGET, and RESULT holds the reason.
# Otherwise RESULT describes what was taken.
#
# A private Kokkos is configured and built by a CMake of its own, at build time. Its targets and its many cache entries therefore
# meet neither those of a project that includes this one and uses Kokkos itself, nor those of another private Kokkos: one Kokkos
# build has one device space at most, so a second device needs a second build, with a TARGET and SPACES of its own.

include(ExternalProject)

set(TILEMAMBA_KOKKOS_UPSTREAM_VERSION 4.7.04)
set(TILEMAMBA_KOKKOS_UPSTREAM_SHA256 4213b248c39e112299fa94ee08817e51126fc02996ed6e2ab56aec4cdb80ee1f)
# Kokkos 4.7.00, complete and unchanged, within the source archive of a Python package: for places where packages are all that
# can be reached.
set(TILEMAMBA_KOKKOS_CARRIER pygenten)
set(TILEMAMBA_KOKKOS_CARRIER_VERSION 0.1.5)
set(TILEMAMBA_KOKKOS_CARRIER_SHA256 e620f05c742905e2db705d875f1cac92ef0ed453f9e6734e9beda26cc0f9cce7)

# ------------------------------------------------------------------------------------------------------------------- sources

# The folder that keeps downloaded archives between builds.
function(_tilemamba_archive_cache out)
  if(DEFINED ENV{XDG_CACHE_HOME} AND IS_ABSOLUTE "$ENV{XDG_CACHE_HOME}")
    set(${out} "$ENV{XDG_CACHE_HOME}/tilemamba" PARENT_SCOPE)
  elseif(DEFINED ENV{HOME} AND IS_ABSOLUTE "$ENV{HOME}")
    set(${out} "$ENV{HOME}/.cache/tilemamba" PARENT_SCOPE)
  else()
    set(${out} "${PROJECT_BINARY_DIR}/_deps/archives" PARENT_SCOPE)
  endif()
endfunction()

# Whether FILE is there and is the archive that HASH names.
function(_tilemamba_is_archive file hash out)
  set(${out} FALSE PARENT_SCOPE)
  if(EXISTS "${file}")
    file(SHA256 "${file}" found)
    if(found STREQUAL hash)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Moves a verified archive into the cache, in one step: another build may be doing the same. If the cache cannot be written the
# archive stays where it is. OUT: where it is then.
function(_tilemamba_keep_archive file kept out)
  set(${out} "${file}" PARENT_SCOPE)
  cmake_path(GET kept PARENT_PATH folder)
  string(RANDOM LENGTH 12 suffix)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    return()
  endif()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E copy "${file}" "${kept}.${suffix}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET
  )
  if(failed)
    return()
  endif()
  file(RENAME "${kept}.${suffix}" "${kept}" RESULT failed)
  if(failed STREQUAL "0")
    set(${out} "${kept}" PARENT_SCOPE)
  endif()
endfunction()

# Downloads the upstream release to FILE. FAILURE: empty, or why not. Never ends the configuration, and gives up soon where
# nothing answers.
function(_tilemamba_download_upstream file failure)
  set(version ${TILEMAMBA_KOKKOS_UPSTREAM_VERSION})
  set(url "https://github.com/kokkos/kokkos/releases/download/${version}/kokkos-${version}.tar.gz")
  # A single byte first: its short limit covers name look-up and connecting, which an inactivity limit does not.
  file(DOWNLOAD "${url}" "${file}.probe" STATUS status TIMEOUT 15 RANGE_START 0 RANGE_END 0)
  file(REMOVE "${file}.probe")
  list(POP_FRONT status code)
  if(code EQUAL 0)
    file(DOWNLOAD "${url}" "${file}" STATUS status TIMEOUT 600 INACTIVITY_TIMEOUT 20)
    list(POP_FRONT status code)
  endif()
  if(NOT code EQUAL 0)
    file(REMOVE "${file}")
    set(${failure} "${status}" PARENT_SCOPE)
    return()
  endif()
  _tilemamba_is_archive("${file}" ${TILEMAMBA_KOKKOS_UPSTREAM_SHA256} right)
  if(NOT right)
    file(REMOVE "${file}")
    set(${failure} "what was downloaded does not have the expected SHA-256" PARENT_SCOPE)
    return()
  endif()
  set(${failure} "" PARENT_SCOPE)
endfunction()

# Downloads the carrier package's source archive to FILE, with pip. FAILURE: empty, or why not.
function(_tilemamba_download_carrier file failure)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND)
    set(${failure} "there is no python3" PARENT_SCOPE)
    return()
  endif()
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file FILENAME name)
  set(package ${TILEMAMBA_KOKKOS_CARRIER})
  file(WRITE "${folder}/requirements.txt"
       "${package}==${TILEMAMBA_KOKKOS_CARRIER_VERSION} --hash=sha256:${TILEMAMBA_KOKKOS_CARRIER_SHA256}\n"
  )
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary ${package}
            --require-hashes -r "${folder}/requirements.txt" -d "${folder}"
    RESULT_VARIABLE code
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
    TIMEOUT 900
  )
  _tilemamba_is_archive("${file}" ${TILEMAMBA_KOKKOS_CARRIER_SHA256} right)
  if(NOT right)
    file(REMOVE "${file}")
    string(STRIP "${output}" output)
    string(REGEX REPLACE "^.*\n([^\n]*)$" "\\1" last_line "${output}")
    set(${failure} "pip download of ${package} ended with ${code}: ${last_line}" PARENT_SCOPE)
    return()
  endif()
  set(${failure} "" PARENT_SCOPE)
endfunction()

# Unpacks WITHIN (a folder inside the archive) to TARGET, in one step.
function(_tilemamba_unpack archive within target)
  string(RANDOM LENGTH 12 suffix)
  set(scratch "${target}.${suffix}")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${scratch}" PATTERNS "${within}/*")
  file(RENAME "${scratch}/${within}" "${target}")
  file(REMOVE_RECURSE "${scratch}")
endfunction()

# The folder of Kokkos's sources in OUT and a word on where they come from in DESCRIPTION; or an empty OUT, and in DESCRIPTION
# the reason.
function(_tilemamba_kokkos_source out description)
  get_property(source GLOBAL PROPERTY TILEMAMBA_KOKKOS_SOURCE)
  get_property(origin GLOBAL PROPERTY TILEMAMBA_KOKKOS_ORIGIN)
  if(NOT origin)
    _tilemamba_obtain_kokkos_source(source origin)
    set_property(GLOBAL PROPERTY TILEMAMBA_KOKKOS_SOURCE "${source}")
    set_property(GLOBAL PROPERTY TILEMAMBA_KOKKOS_ORIGIN "${origin}")
  endif()
  set(${out} "${source}" PARENT_SCOPE)
  set(${description} "${origin}" PARENT_SCOPE)
endfunction()

function(_tilemamba_obtain_kokkos_source out description)
  set(${out} "" PARENT_SCOPE)
  if(FETCHCONTENT_SOURCE_DIR_KOKKOS)
    if(NOT EXISTS "${FETCHCONTENT_SOURCE_DIR_KOKKOS}/core/src/Kokkos_Core.hpp")
      set(${description} "FETCHCONTENT_SOURCE_DIR_KOKKOS holds no Kokkos: ${FETCHCONTENT_SOURCE_DIR_KOKKOS}" PARENT_SCOPE)
      return()
    endif()
    set(${out} "${FETCHCONTENT_SOURCE_DIR_KOKKOS}" PARENT_SCOPE)
    set(${description} "the sources in ${FETCHCONTENT_SOURCE_DIR_KOKKOS}" PARENT_SCOPE)
    return()
  endif()

  _tilemamba_archive_cache(cache)
  set(scratch "${PROJECT_BINARY_DIR}/_deps/download")
  set(upstream_name "kokkos-${TILEMAMBA_KOKKOS_UPSTREAM_VERSION}")
  set(carrier_name "${TILEMAMBA_KOKKOS_CARRIER}-${TILEMAMBA_KOKKOS_CARRIER_VERSION}")
  set(upstream_within "${upstream_name}")
  set(carrier_within "${carrier_name}/tpls/kokkos")
  set(upstream_hash ${TILEMAMBA_KOKKOS_UPSTREAM_SHA256})
  set(carrier_hash ${TILEMAMBA_KOKKOS_CARRIER_SHA256})
  set(upstream_origin "${upstream_name}.tar.gz")
  set(carrier_origin "the copy in ${carrier_name}.tar.gz")

  # What an earlier build unpacked or kept comes before any download, in the same order.
  set(chosen "")
  foreach(origin IN ITEMS upstream carrier)
    string(SUBSTRING "${${origin}_hash}" 0 16 short_hash)
    set(${origin}_source "${PROJECT_BINARY_DIR}/_deps/kokkos-${short_hash}")
    set(${origin}_kept "${cache}/${short_hash}-${${origin}_name}.tar.gz")
    if(NOT chosen AND EXISTS "${${origin}_source}/CMakeLists.txt")
      set(chosen ${origin})
    endif()
  endforeach()
  if(NOT chosen)
    foreach(origin IN ITEMS upstream carrier)
      if(NOT chosen)
        _tilemamba_is_archive("${${origin}_kept}" ${${origin}_hash} right)
        if(right)
          message(STATUS "Kokkos: ${${origin}_origin}, kept in ${cache}")
          _tilemamba_unpack("${${origin}_kept}" "${${origin}_within}" "${${origin}_source}")
          set(chosen ${origin})
        endif()
      endif()
    endforeach()
  endif()
  if(NOT chosen AND FETCHCONTENT_FULLY_DISCONNECTED)
    set(${description} "FETCHCONTENT_FULLY_DISCONNECTED is ON and no Kokkos archive is kept in ${cache}" PARENT_SCOPE)
    return()
  endif()
  if(NOT chosen)
    file(MAKE_DIRECTORY "${scratch}")
    set(failures "")
    foreach(origin IN ITEMS upstream carrier)
      if(NOT chosen)
        message(STATUS "Kokkos: downloading ${${origin}_name}.tar.gz")
        set(file "${scratch}/${${origin}_name}.tar.gz")
        if(origin STREQUAL "upstream")
          _tilemamba_download_upstream("${file}" failure)
        else()
          _tilemamba_download_carrier("${file}" failure)
        endif()
        if(failure STREQUAL "")
          _tilemamba_keep_archive("${file}" "${${origin}_kept}" file)
          _tilemamba_unpack("${file}" "${${origin}_within}" "${${origin}_source}")
          set(chosen ${origin})
        else()
          message(STATUS "Kokkos: ${${origin}_name}.tar.gz cannot be had: ${failure}")
          list(APPEND failures "${${origin}_name}.tar.gz: ${failure}")
        endif()
      endif()
    endforeach()
    file(REMOVE_RECURSE "${scratch}")
  endif()
  if(NOT chosen)
    list(JOIN failures "; " failures)
    set(${description}
        "Kokkos cannot be had (${failures}). Install Kokkos 4.5 or later (static, position independent, with its Serial space), \
or point FETCHCONTENT_SOURCE_DIR_KOKKOS to its sources"
        PARENT_SCOPE
    )
    return()
  endif()
  set(${out} "${${chosen}_source}" PARENT_SCOPE)
  set(${description} "${${chosen}_origin}" PARENT_SCOPE)
endfunction()

# ------------------------------------------------------------------------------------------------------------- a private one

function(tilemamba_build_kokkos target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHARED" "RESULT" "SPACES;CMAKE_ARGS")
  _tilemamba_kokkos_source(source origin)
  if(NOT source)
    set(${arg_RESULT} "${origin}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${source}/CMakeLists.txt" version_lines REGEX "^set\\(Kokkos_VERSION_(MAJOR|MINOR|PATCH) [0-9]+\\)")
  string(REGEX MATCHALL "[0-9]+" version "${version_lines}")
  list(JOIN version "." version)

  set(prefix "${PROJECT_BINARY_DIR}/_deps/${target}")
  set(kind STATIC)
  set(visibility hidden)
  if(arg_SHARED)
    # As an application would have it: for tests.
    set(kind SHARED)
    set(visibility default)
  endif()
  set(libraries "")
  foreach(library IN ITEMS kokkoscontainers kokkossimd kokkoscore)  # in link order
    list(APPEND libraries "${prefix}/lib/${CMAKE_${kind}_LIBRARY_PREFIX}${library}${CMAKE_${kind}_LIBRARY_SUFFIX}")
  endforeach()

  set(arguments
      -DCMAKE_INSTALL_PREFIX=${prefix}
      -DCMAKE_INSTALL_LIBDIR=lib
      -DCMAKE_INSTALL_MESSAGE=NEVER
      # Always optimised, always without sanitizers: it is not what our tests are after, and all build types share ccache's copy.
      -DCMAKE_BUILD_TYPE=Release
      -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
      -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
      -DCMAKE_CXX_STANDARD=20
      -DCMAKE_CXX_EXTENSIONS=OFF
      -DCMAKE_CXX_VISIBILITY_PRESET=${visibility}
      -DCMAKE_VISIBILITY_INLINES_HIDDEN=$<STREQUAL:${visibility},hidden>
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON
      -DBUILD_SHARED_LIBS=$<STREQUAL:${kind},SHARED>
      # Our copy must not load the profiling tools that KOKKOS_TOOLS_LIBS names for the application's Kokkos.
      -DKokkos_ENABLE_LIBDL=OFF
      -DKokkos_ENABLE_DEPRECATED_CODE_4=OFF
      -DKokkos_ENABLE_TESTS=OFF
      -DKokkos_ENABLE_EXAMPLES=OFF
      -DKokkos_ENABLE_BENCHMARKS=OFF
  )
  foreach(space IN LISTS arg_SPACES)
    list(APPEND arguments -DKokkos_ENABLE_${space}=ON)
  endforeach()
  if(CMAKE_TOOLCHAIN_FILE)
    list(APPEND arguments -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
  endif()
  cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)
  if(DEFINED ENV{CMAKE_BUILD_PARALLEL_LEVEL})
    set(jobs "$ENV{CMAKE_BUILD_PARALLEL_LEVEL}")
  endif()
  set(external ${target}_build)
  ExternalProject_Add(
    ${external}
    EXCLUDE_FROM_ALL ON
    PREFIX "${prefix}"
    SOURCE_DIR "${source}"
    BINARY_DIR "${prefix}/build"
    DOWNLOAD_COMMAND ""
    CMAKE_ARGS ${arguments} "-DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}" ${arg_CMAKE_ARGS}
    BUILD_COMMAND "${CMAKE_COMMAND}" --build <BINARY_DIR> --parallel ${jobs}
    BUILD_BYPRODUCTS ${libraries}
    LOG_CONFIGURE ON
    LOG_BUILD ON
    LOG_INSTALL ON
    LOG_OUTPUT_ON_FAILURE ON
  )

  add_library(${target} INTERFACE)
  add_dependencies(${target} ${external})
  file(MAKE_DIRECTORY "${prefix}/include")  # must be there before it is built
  target_include_directories(${target} SYSTEM INTERFACE "${prefix}/include")
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} INTERFACE ${libraries} Threads::Threads)
  if(OPENMP IN_LIST arg_SPACES)
    target_link_libraries(${target} INTERFACE OpenMP::OpenMP_CXX)
  endif()
  if(arg_SHARED)
    target_link_libraries(${target} INTERFACE ${CMAKE_DL_LIBS})
  endif()
  set(${arg_RESULT} "Kokkos ${version} from ${origin}" PARENT_SCOPE)
endfunction()

# ----------------------------------------------------------------------------------------------------------- an installed one

# Whether an installed Kokkos can be linked into a module. FOLDER: where its package file is; or empty, and in REASON why not.
function(_tilemamba_examine_installed_kokkos spaces folder reason)
  # In a CMake of its own: find_package(Kokkos) leaves cache entries behind that a project with a Kokkos of its own would meet.
  # The answer is kept, as long as the question is the same.
  set(question "${spaces}|${Kokkos_DIR}|${Kokkos_ROOT}|$ENV{Kokkos_ROOT}|${CMAKE_PREFIX_PATH}|$ENV{CMAKE_PREFIX_PATH}")
  if(NOT TILEMAMBA_KOKKOS_QUESTION STREQUAL question)
    set(probe "${PROJECT_BINARY_DIR}/_deps/kokkos_probe")
    file(REMOVE_RECURSE "${probe}")
    # Handed over in a file, since a list does not survive a command line.
    set(settings "set(SPACES [==[${spaces}]==] CACHE STRING \"\")\n")
    foreach(variable IN ITEMS CMAKE_TOOLCHAIN_FILE CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS CMAKE_PREFIX_PATH Kokkos_DIR Kokkos_ROOT)
      if(${variable})
        string(APPEND settings "set(${variable} [==[${${variable}}]==] CACHE STRING \"\")\n")
      endif()
    endforeach()
    file(WRITE "${probe}/settings.cmake" "${settings}")
    execute_process(
      COMMAND "${CMAKE_COMMAND}" -C "${probe}/settings.cmake" -S "${PROJECT_SOURCE_DIR}/cmake/kokkos_probe" -B "${probe}" -G
              "${CMAKE_GENERATOR}"
      RESULT_VARIABLE failed
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output
    )
    set(found_folder "")
    set(found_reason "its package file cannot be used")
    if(NOT failed)
      file(READ "${probe}/folder" found_folder)
      file(READ "${probe}/reason" found_reason)
    endif()
    if(found_folder AND found_reason STREQUAL "")
      execute_process(
        COMMAND "${CMAKE_COMMAND}" --build "${probe}"
        RESULT_VARIABLE failed
        OUTPUT_VARIABLE output
        ERROR_VARIABLE output
      )
      if(failed)
        set(found_reason "it cannot be linked into a shared object (not position independent?)")
      endif()
    endif()
    set(TILEMAMBA_KOKKOS_QUESTION "${question}" CACHE INTERNAL "")
    set(TILEMAMBA_KOKKOS_FOLDER "${found_folder}" CACHE INTERNAL "")
    set(TILEMAMBA_KOKKOS_REASON "${found_reason}" CACHE INTERNAL "")
  endif()
  if(TILEMAMBA_KOKKOS_REASON STREQUAL "")
    set(${folder} "${TILEMAMBA_KOKKOS_FOLDER}" PARENT_SCOPE)
    set(${reason} "" PARENT_SCOPE)
  else()
    set(${folder} "" PARENT_SCOPE)
    set(${reason} "${TILEMAMBA_KOKKOS_REASON}" PARENT_SCOPE)
    if(TILEMAMBA_KOKKOS_FOLDER)
      set(${reason} "the one in ${TILEMAMBA_KOKKOS_FOLDER} is not taken: ${TILEMAMBA_KOKKOS_REASON}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(tilemamba_kokkos target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RESULT" "SPACES")
  if(FETCHCONTENT_SOURCE_DIR_KOKKOS)
    set(reason "FETCHCONTENT_SOURCE_DIR_KOKKOS is set")
  elseif(FETCHCONTENT_TRY_FIND_PACKAGE_MODE STREQUAL "NEVER")
    set(reason "FETCHCONTENT_TRY_FIND_PACKAGE_MODE is NEVER")
  elseif(TARGET Kokkos::kokkoscore OR TARGET kokkoscore)
    set(reason "the enclosing project has a Kokkos of its own, which is left to it")
  else()
    _tilemamba_examine_installed_kokkos("${arg_SPACES}" folder reason)
  endif()
  if(reason STREQUAL "")
    set(directory_was_known "${Kokkos_DIR}")
    # As our targets have it; Kokkos's package file would otherwise write it into the cache, where it would bind everyone.
    set(CMAKE_CXX_EXTENSIONS OFF)
    find_package(Kokkos 4.5 QUIET REQUIRED CONFIG PATHS "${folder}" NO_DEFAULT_PATH)
    if(NOT directory_was_known)
      unset(Kokkos_DIR CACHE)
    endif()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE Kokkos::kokkos)
    set(${arg_RESULT} "Kokkos ${Kokkos_VERSION} in ${folder}" PARENT_SCOPE)
    return()
  endif()
  message(STATUS "Kokkos: no installed one: ${reason}")
  tilemamba_build_kokkos(${target} SPACES ${arg_SPACES} RESULT description)
  set(${arg_RESULT} "${description}" PARENT_SCOPE)
endfunction()
