# SPDX-License-Identifier: Apache-2.0
# The project as others use it. Run as: cmake -D CHECK=<which> -D SOURCE=<tree> -D BUILD=<its build folder> -D SCRATCH=<a folder>
# -D GENERATOR=... -D COMPILER=... -D BACKENDS=<members that must run> -P check.cmake

file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")

# must_succeed(COMMAND...) prints what the command said if it fails.
function(must_succeed)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code STREQUAL "0")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit code ${code} from ${command}\n${output}")
  endif()
  message(STATUS "${output}")
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

set(configure "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}")

if(CHECK STREQUAL "installed")
  # Installed, moved elsewhere, found by another project, run from there.
  must_succeed("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
  file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")
  file(GLOB_RECURSE installed LIST_DIRECTORIES true RELATIVE "${SCRATCH}/moved" "${SCRATCH}/moved/*")
  foreach(file IN LISTS installed)
    string(TOLOWER "${file}" lower)
    if(lower MATCHES "kokkos" AND NOT file MATCHES "/tilemamba_backend_kokkos[^/]*\\.so$")
      message(FATAL_ERROR "Kokkos must not be installed, but there is ${file}")
    endif()
  endforeach()
  must_succeed(
    ${configure} -S "${SOURCE}/tests/package/consumer" -B "${SCRATCH}/consumer" "-DCMAKE_PREFIX_PATH=${SCRATCH}/moved"
  )
  must_succeed("${CMAKE_COMMAND}" --build "${SCRATCH}/consumer")
  must_succeed("${SCRATCH}/consumer/consumer" ${BACKENDS})
  if(EXISTS "${SCRATCH}/moved/bin/tilemamba")
    must_succeed("${SCRATCH}/moved/bin/tilemamba" info)
  endif()
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
