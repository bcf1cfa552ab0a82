#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What must hold of compiled device code: gate.sh OBJECT...
#
# No kernel has spilled registers or a stack frame. Every kernel that multiplies has the tensor-core instructions of its generation
# (HMMA; HGMMA of wgmma; UTCHMMA of tcgen05, with LDTM and STTM, which load from tensor memory and store to it), and every one that
# loads tiles has copies in the background (LDGSTS, or UTMALDG of TMA). Products of wgmma are issued four at least at a time: where
# registers do not suffice the compiler waits for each (C7510 and what follows, which are no warnings). Needs cuobjdump, of the CUDA
# toolkit or ($CUOBJDUMP) of the PyPI package nvidia-cuda-cuobjdump. Exit 0: fine, 1: not, 77: could not be checked (and says why).
set -euo pipefail
tool=${CUOBJDUMP:-}
[[ -n $tool && $tool != *NOTFOUND ]] || tool=$(command -v cuobjdump || true)
if [[ -z $tool ]]; then
  printf '\n*** SKIPPED: cuobjdump is not installed, so the device code was not checked ***\n\n' >&2
  exit 77
fi

failed=0
for object in "$@"; do
  # " Function NAME:", and on the next line "REG:n STACK:n SHARED:n LOCAL:n ...".
  found=$("$tool" --dump-resource-usage "$object" 2>/dev/null |
    awk '/Function/ { name = $2 } /STACK:[1-9]|LOCAL:[1-9]/ { print "    " name $0 }')
  if [[ -n $found ]]; then
    printf 'gate: %s: kernels with a stack frame or spills:\n%s\n' "$object" "$found" >&2
    failed=1
  fi
  # For each kernel: its name, and which of the instructions it has. (UTCHMMA has HMMA in its name, too.) The last of the products
  # that are issued together says gsb0.
  found=$("$tool" --dump-sass "$object" 2>/dev/null | awk '
    /Function :/ { report(); name = $3; delete has; together = 0; least = 4 }
    / HGMMA/ { ++together }
    / HGMMA.* gsb0/ { if (together < least) least = together; together = 0 }
    match($0, / (UTCHMMA|HGMMA|HMMA|LDTM|STTM|LDGSTS|UTMALDG)[. ]/) { has[substr($0, RSTART + 1, RLENGTH - 2)] = 1 }
    END { report() }
    function report(  fine) {
      if (name !~ /walk|fused|sum_segments|score_chunks|pass_state|compute_out/) return
      fine = "HMMA" in has && "LDGSTS" in has
      if (name ~ /sm90/) fine = "HGMMA" in has && "UTMALDG" in has
      if (name ~ /sm100/) fine = "UTCHMMA" in has && "LDTM" in has && ("STTM" in has || name ~ /score_chunks/) && "UTMALDG" in has
      if (least < 4) fine = 0
      if (!fine) print "    " name
    }')
  if [[ -n $found ]]; then
    printf 'gate: %s: kernels without products on tensor cores, issued together, or copies in the background:\n%s\n' "$object" "$found" >&2
    failed=1
  fi
done
exit "$failed"
