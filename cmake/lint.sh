#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks of the tree; each is a test. Exit 0: fine, 1: not, 77: could not be checked (and says why).
#
#   lint.sh kernels            the algorithm's text knows no vendor and no preprocessor condition, and includes core only
#   lint.sh environment        one file reads the environment
#   lint.sh format             clang-format would change nothing ($CLANG_FORMAT, or the one on PATH)
#   lint.sh c_symbols LIBRARY  the C functions that the library shows are those of core/c_symbols.txt and of tilemamba.h
#   lint.sh symbols LIBRARY MODULE...    the shared objects show what they should and nothing else
#   lint.sh baseline OBJECT... compiled for x86-64, no instruction works on the wider registers or is coded as AVX has it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=0
complain() {
  printf 'lint: %s\n' "$1" >&2
  printf '%s\n' "$2" | sed 's/^/    /' >&2
  failed=1
}
skip() {
  printf '\n*** SKIPPED: %s ***\n\n' "$1" >&2
  exit 77
}
# The C and C++ files of the given folders (tracked or not), one a line.
sources() {
  find "$@" -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.hip' \) | sort
}
# grep over a list of files on standard input, as FILE:LINE:TEXT; finding nothing is no failure.
search() {
  xargs -d '\n' -r grep -nHE "$@" || [[ $? == 1 || $? == 123 ]]
}

check_kernels() {
  local files found
  files=$(sources kernels)
  [[ -n $files ]] || { complain "kernels/ holds no C++ file" "kernels"; return; }

  # Vendors' words, in comments too. Each as a word of its own, also as a part of snake_case, camelCase or CAPITALS; "plane",
  # "ship" or "swarm" are none of them.
  local lower='cuda|hip|kokkos|wgmma|mma\.sync|tcgen05|threadIdx|blockIdx|lanes?|warps?|warpgroups?'
  local capital='Cuda|Hip|Kokkos|Wgmma|ThreadIdx|BlockIdx|Lanes?|Warps?|Warpgroups?|WarpGroups?'
  local upper='CUDA|HIP|KOKKOS|WGMMA|TCGEN05|LANES?|WARPS?|WARPGROUPS?'
  found=$(search "(^|[^A-Za-z])($lower)([^a-z]|\$)|(^|[^A-Z])($capital)([^a-z]|\$)|(^|[^A-Za-z])($upper)([^A-Z]|\$)|__shared__" <<<"$files")
  [[ -z $found ]] || complain "kernels/ must not know any vendor" "$found"

  found=$(search '^[[:space:]]*#[[:space:]]*(if|elif|else|endif)' <<<"$files")
  [[ -z $found ]] || complain "kernels/ must have no preprocessor condition; what differs between backends belongs to the tile interface" "$found"

  # Of the standard library only headers that declare types and have nothing to run: what is called must be device code.
  found=$(search '^[[:space:]]*#[[:space:]]*include' <<<"$files" |
    grep -vE 'include[[:space:]]+("(core|kernels)/[^"]+"|<tilemamba/[^>]+>|<(cstddef|cstdint|concepts|type_traits|utility)>)' || true)
  [[ -z $found ]] || complain "kernels/ may include core, itself and a few standard headers of types only" "$found"

  found=$(sources core | search '^[[:space:]]*#[[:space:]]*include[[:space:]]+"(kernels|backends)/')
  [[ -z $found ]] || complain "core must not include kernels or backends" "$found"
}

check_environment() {
  local files
  files=$(sources core backends kernels | xargs -d '\n' -r grep -lwE 'getenv|secure_getenv|environ' || [[ $? == 1 || $? == 123 ]])
  [[ $files == core/environment.cpp ]] ||
    complain "the environment is to be read in core/environment.cpp and nowhere else; it is read in" "${files:-no file at all}"
}

check_format() {
  local tool=${CLANG_FORMAT:-} version found
  [[ -n $tool && $tool != *NOTFOUND ]] || tool=$(command -v clang-format || true)
  [[ -n $tool ]] || skip "clang-format is not installed, so the formatting was not checked"
  version=$("$tool" --version | sed -nE 's/.*version ([0-9]+)\..*/\1/p')
  # Versions differ in small ways. The tree follows 14, that of Debian 12; a newer one may find fault with lines that 14 wants so.
  ((version >= 14)) || skip "clang-format is version $version; 14 or later is needed to check the formatting"
  if ! found=$(sources core backends kernels python tests bench examples | xargs -d '\n' -r "$tool" --style=file --dry-run -Werror 2>&1); then
    complain "clang-format $version would change these lines (clang-format -i FILE does)" \
      "$(grep -E '(error|warning):' <<<"$found" | head -n 40)"
    ((version == 14)) || printf 'lint: the tree follows clang-format 14, this is %s\n' "$version" >&2
  fi
}

check_symbols() {
  local nm=${NM:-nm}
  command -v "$nm" >/dev/null || skip "$nm is not installed, so the symbols were not checked"
  local library=$1 object found
  shift
  for object in "$@"; do
    found=$("$nm" -D --defined-only --format=posix "$object" | awk '{ print $1 }')
    [[ $found == tilemamba_backend_module ]] || complain "$object must show tilemamba_backend_module only; it shows" "$found"
  done
  if [[ $library =~ \.so\.([0-9]+\.[0-9]+) ]]; then
    # Anything else that is shown could collide with an application's own symbol of that name.
    local version="TILEMAMBA_${BASH_REMATCH[1]}"
    found=$("$nm" -D --defined-only --with-symbol-versions --format=posix "$library" | awk '{ print $1 }' |
      grep -vE "^(_ZN|_ZNK|_ZT[ISV]N)9tilemamba.*@@$version\$|^tilemamba_[a-z0-9_]+@@$version\$|^$version(@@$version)?\$" || true)
    [[ -z $found ]] || complain "$library must show symbols of namespace tilemamba and tilemamba_* only, as $version; it shows" "$found"
    # Read to the end: with -q, grep would leave a writer without a reader, and that is a failure too.
    "$nm" -D --defined-only --with-symbol-versions "$library" | grep -E "9tilemamba.*@@$version\$" >/dev/null ||
      complain "$library must show its interface as $version; it shows" "nothing"
  fi
}

check_c_symbols() {
  local nm=${NM:-nm}
  command -v "$nm" >/dev/null || skip "$nm is not installed, so the symbols were not checked"
  local wanted found
  wanted=$(<core/c_symbols.txt)
  if [[ $1 == *.so* ]]; then
    found=$("$nm" -D --defined-only --format=posix "$1" | sed -nE 's/^(tilemamba_[a-z0-9_]+)[@ ].*/\1/p' | LC_ALL=C sort)
    [[ $found == "$wanted" ]] || complain "$1 must show the C functions of core/c_symbols.txt; the difference" "$(diff <(echo "$wanted") <(echo "$found"))"
  fi
  found=$(grep -v '^typedef' core/include/tilemamba/tilemamba.h | sed -nE 's/^TILEMAMBA_EXPORT .*(tilemamba_[a-z0-9_]+)\(.*/\1/p' | LC_ALL=C sort)
  [[ $found == "$wanted" ]] || complain "tilemamba.h must declare the C functions of core/c_symbols.txt; the difference" "$(diff <(echo "$wanted") <(echo "$found"))"
}

check_baseline() {
  command -v objdump >/dev/null || skip "objdump is not installed, so the instructions were not checked"
  local object found
  for object in "$@"; do
    found=$(objdump -d --no-show-raw-insn "$object" | grep -E $'%[yz]mm|\tv[a-z0-9]+ .*%xmm' | head -n 5 || true)
    [[ -z $found ]] || complain "$object is for every x86-64 and has instructions of AVX" "$found"
  done
}

case ${1:-} in
  c_symbols) shift && check_c_symbols "$@" ;;
  kernels) check_kernels ;;
  environment) check_environment ;;
  format) check_format ;;
  symbols) shift && check_symbols "$@" ;;
  baseline) shift && check_baseline "$@" ;;
  *)
    sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
exit "$failed"
