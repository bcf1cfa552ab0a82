#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs an NVIDIA GPU, on a machine that has one: stored cases, tests, sanitizers, times. From built binaries, so
# that the machine needs no compiler.
#
#   device_suite.sh BUILD OUT [GOLDEN]
#
# BUILD: a build folder with bin/ and lib/ (TILEMAMBA_CUDA=ON TILEMAMBA_BENCH=ON); it may have been moved. OUT: where logs and
# JSON go. GOLDEN: a folder of stored cases, default tests/golden. TILEMAMBA_TEST_DRAWS scales the random tests.
# Exit code: 0 if all passed.
set -uo pipefail
[[ $# -ge 2 ]] || { sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
golden=$(cd "${3:-$here/tests/golden}" && pwd)
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0

# step NAME SECONDS COMMAND...: its output goes to OUT/NAME.log
step() {
  local name=$1 seconds=$2 code=0
  shift 2
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1 || code=$?
  printf '%-24s %s\n' "$name" "$([[ $code == 0 ]] && echo passed || echo "FAILED ($code), see $out/$name.log")"
  [[ $code == 0 ]] || failed=1
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader | tee "$out/device.txt"
git -C "$here" rev-parse HEAD 2>/dev/null | tee "$out/commit.txt"

step golden 300 "$build/bin/tilemamba" check --all --backend cuda-sm80 "$golden"

# Tests of what a plan says of host memory are not for a backend that cannot address it. The tests of 32-bit offsets need 40 GB
# of host memory and a process of their own.
export TILEMAMBA_TEST_MEMBERS=cuda-sm80 TILEMAMBA_GOLDEN_DIR=$golden
shards=$(($(nproc) > 8 ? 8 : $(nproc)))
for ((i = 0; i < shards; ++i)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i step "tests.$i" 900 "$build/bin/tilemamba_tests" --gtest_brief=1 \
    --gtest_filter='*cuda_sm80*-*OffsetsBeyond32Bits*:*Plan*:*Error*:*Concurrent*' &
done
wait
[[ -z $(grep -l '  FAILED  ' "$out"/tests.*.log) ]] || failed=1

for tool in memcheck racecheck initcheck synccheck; do
  step "$tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/bin/tilemamba" check --all --backend cuda-sm80 \
    "$here"/tests/golden/{minimal,varlen_with_documents,mild_fp32,chunk_states}.safetensors
done

step times 300 bash "$here/bench/run_gpu.sh" "$build" "$out"
nvidia-smi --query-gpu=clocks.sm,clocks.mem --format=csv,noheader >>"$out/device.txt"
exit "$failed"
