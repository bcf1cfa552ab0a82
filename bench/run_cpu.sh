#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the CPU backends on one thread and on all cores and writes one result file, OUTPUT_FOLDER/<cpu>-<date>.json:
#
#   bench/run_cpu.sh BUILD_FOLDER OUTPUT_FOLDER [LEVEL...] [-- ARGUMENT...]
#
# LEVEL: levels of instructions, as in TILEMAMBA_CPU_ISA; default: the best that this CPU has. ARGUMENT: for tilemamba_bench, e.g.
# --benchmark_filter='^(sgemm|memory|sizes|tokens)/'; unless said otherwise there are five repetitions. The machine should
# have nothing else to do. bench/report.py makes a page with pictures of the file, bench/table.py tables, bench/compare.py
# compares two.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(dirname "${BASH_SOURCE[0]}")
program=$1/bin/tilemamba_bench
output=$2
shift 2
levels=()
while (($# > 0)) && [[ $1 != -- ]]; do
  levels+=("$1")
  shift
done
(($# == 0)) || shift
[[ ${#levels[@]} != 0 ]] || levels=('')

commit=$(git -C "$here" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for level in "${levels[@]}"; do
  for threads in $( (echo 1 && nproc) | sort -nu); do
    TILEMAMBA_CPU_ISA=$level OMP_NUM_THREADS=$threads "$program" --benchmark_context=commit="$commit" --benchmark_repetitions=5 \
      --benchmark_display_aggregates_only=true --benchmark_out="$runs/$level-$threads.json" --benchmark_out_format=json "$@" >&2
  done
done
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr '[:upper:]' '[:lower:]' | tr -cs '[:alnum:]\n' -)
file=$output/${cpu:-cpu}-$(date -u +%Y-%m-%d).json
mkdir -p "$output"
python3 "$here/results_file.py" "$runs"/*.json >"$file.part"
mv "$file.part" "$file"
echo "$file"
