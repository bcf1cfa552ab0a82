#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the CPU backends on the published grid and writes one JSON file a type:
#
#   bench/cpu.sh BUILD_FOLDER OUTPUT_FOLDER
#
# The machine should have nothing else to do. Each file holds the device, the versions, the commit and the rates of copy and
# matrix product that the floor was made with.
set -euo pipefail
build=$1
output=$2
commit=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse HEAD)
mkdir -p "$output"
for dtype in f32 bf16 f16; do
  file="$output/cpu-$dtype.json"
  "$build/bin/tilemamba" bench --json --dtype "$dtype" --min-tokens 1024 --max-tokens 4096 --repeat 5 >"$file.part"
  python3 - "$file.part" "$commit" >"$file" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as file:
    result = json.load(file)
json.dump({"commit": sys.argv[2], **result}, sys.stdout, indent=1)
print()
PYTHON
  rm "$file.part"
done
