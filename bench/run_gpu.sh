#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the backends of a GPU, and others that are installed, on the same inputs, and writes one result file,
# OUTPUT_FOLDER/<device>-<date>.json:
#
#   bench/run_gpu.sh BUILD_FOLDER OUTPUT_FOLDER [ARGUMENT...]
#
# ARGUMENT: for tilemamba_bench, e.g. --benchmark_filter='^grid/'; unless said otherwise there are three repetitions. TILEMAMBA_COMMIT:
# the commit, where there is no repository. Others: bench/peers.py, with a python3 that has PyTorch; without, there are none and
# no floor. About two minutes on an H200. What reads the file: as for bench/run_cpu.sh.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(dirname "${BASH_SOURCE[0]}")
program=$1/bin/tilemamba_bench
output=$2
shift 2

commit=${TILEMAMBA_COMMIT:-$(git -C "$here" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)}
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
"$program" --backend=cuda --benchmark_context=commit="$commit",driver="${driver:-unknown}" --benchmark_repetitions=3 \
  --benchmark_min_time=0.01 --benchmark_display_aggregates_only=true --benchmark_out="$runs/1.json" --benchmark_out_format=json "$@" >&2
python3 "$here/peers.py" "$runs/1.json" -o "$runs/2.json" --repetitions 3 >&2 || [[ $? == 77 ]]  # 77: there is no PyTorch
device=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["context"]["device"])' "$runs/1.json")
file=$output/$(tr '[:upper:]' '[:lower:]' <<<"$device" | tr -cs '[:alnum:]\n' -)-$(date -u +%Y-%m-%d).json
mkdir -p "$output"
python3 "$here/results_file.py" "$runs"/*.json >"$file.part"
mv "$file.part" "$file"
echo "$file"
