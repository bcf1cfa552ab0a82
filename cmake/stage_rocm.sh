#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian spreads ROCm over the system; a clang that is newer than Debian's ROCm wants it in one folder and knows more
# architectures. stage_rocm.sh FOLDER CLANG ARCHITECTURE... makes that folder, of links, from libamdhip64-dev and rocm-device-libs.
set -euo pipefail
folder=$1 clang=$2
shift 2
library=/usr/lib/$(uname -m)-linux-gnu
rm -rf "$folder"
mkdir -p "$folder"/{include,lib,bin,amdgcn/bitcode}
for headers in hip hsa; do ln -s "/usr/include/$headers" "$folder/include/$headers"; done
ln -s "$library"/libamdhip64.so* "$folder/lib/"
ln -s "$library"/amdgcn/bitcode/*.bc "$folder/amdgcn/bitcode/"
for version in /usr/bin/.hipVersion /usr/share/hip/version; do
  if [[ -e $version ]]; then cp -L "$version" "$folder/bin/.hipVersion"; fi
done
for architecture in "$@"; do
  digits=${architecture#gfx} # 90a, 942, 1100: major (all but two), minor, stepping (hexadecimal)
  constant="$folder/amdgcn/bitcode/oclc_isa_version_$digits.bc"
  if [[ -e $constant ]]; then continue; fi
  number=$((10#${digits%??} * 1000 + 16#${digits: -2:1} * 100 + 16#${digits: -1}))
  "$clang" -x ir -c -emit-llvm -target amdgcn-amd-amdhsa -nogpulib -Wno-override-module -o "$constant" - \
    <<<"@__oclc_ISA_version = linkonce_odr hidden local_unnamed_addr addrspace(4) constant i32 $number, align 4"
done
