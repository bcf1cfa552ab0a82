#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command line on a CPU that this machine may not have: emulated_cpu.sh MODEL LEVEL TILEMAMBA CASE...
#
# On qemu's CPU MODEL, where an instruction that the model lacks ends the program: the module of LEVEL is picked, it and those
# below it give the stored answers of each CASE, and forcing a level above is an error that says why. Exit 0: fine, 1: not, 77: no
# qemu.
set -euo pipefail
model=$1 best=$2 tilemamba=$3
shift 3
unset TILEMAMBA_BACKEND TILEMAMBA_CPU_ISA
command -v qemu-x86_64 >/dev/null || {
  printf '\n*** SKIPPED: qemu-x86_64 is not installed, so no older CPU was tried ***\n\n' >&2
  exit 77
}
fail() {
  printf '%s: %s\n%s\n' "$model" "$1" "$2" >&2
  exit 1
}
# Without qemu's warnings, which name those of a model's features that it lacks itself.
emulated() { qemu-x86_64 -cpu "$model" "$tilemamba" "$@" 2> >(grep -v '^qemu-x86_64: warning' >&2); }

info=$(emulated info)
[[ $info == *", $best "* ]] || fail "$best should have been picked" "$info"
has=yes
for level in x86-64 x86-64-v3 x86-64-v4; do
  export TILEMAMBA_CPU_ISA=$level
  if [[ $has == yes ]]; then
    info=$(emulated info)
    [[ $info == *", $level "* ]] || fail "$level was forced and not loaded" "$info"
    emulated check --all --backend kokkos "$@"
  else
    ! output=$(emulated check --backend kokkos "$@" 2>&1) || fail "$level was to be refused" "$output"
    [[ $output == *"TILEMAMBA_CPU_ISA is $level, which this CPU does not have"* ]] || fail "$level: the reason is missing" "$output"
  fi
  [[ $level != "$best" ]] || has=no
done
