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

mapfile -t members < <("$build/bin/tilemamba" info --json |
  awk -F'"' '/"name":/ { name = $4 } /"can_run": true/ && name ~ /^cuda-sm/ { print name }')
[[ ${#members[@]} != 0 ]] || { "$build/bin/tilemamba" info >&2; exit 1; }
for member in "${members[@]}"; do
  step "golden.$member" 300 "$build/bin/tilemamba" check --all --backend "$member" "$golden"
done
# The PTX, as the driver compiles it for this device. (There is none for cuda-sm90: wgmma is of one architecture.)
CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1 step golden.ptx 300 "$build/bin/tilemamba" check --all --backend cuda-sm80 "$golden"

TILEMAMBA_TEST_MEMBERS=$(IFS=,; echo "${members[*]}")
export TILEMAMBA_TEST_MEMBERS TILEMAMBA_GOLDEN_DIR=$golden
shards=$(($(nproc) > 8 ? 8 : $(nproc)))
# Tests of 64-bit offsets have tensors of up to 20 GB each: one after the other.
for ((i = 0; i < shards; ++i)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i step "tests.$i" 900 "$build/bin/tilemamba_tests" --gtest_brief=1 \
    --gtest_filter='*cuda_sm*-*OffsetsBeyond32Bits*' &
done
wait
step tests.far 300 "$build/bin/tilemamba_tests" --gtest_brief=1 --gtest_filter='*OffsetsBeyond32Bits*cuda_sm*'
step tests.cuda 300 "$build/bin/tilemamba_cuda_tests" --gtest_brief=1
# Single instructions: does the machine that the host plays say what this device says? (Skipped but on capability 9.0.)
step tests.calibration 300 "$build/bin/tilemamba_cuda_lanes_tests" --gtest_brief=1 --gtest_filter='*Calibration*'
[[ -z $(grep -l '  FAILED  ' "$out"/tests.*.log) ]] || failed=1

# Not racecheck for wgmma: it does not see that the lanes of a warp meet before one of them arrives at a barrier for all, and so
# reports everything that such barriers keep apart. There tests/cuda looks for races instead.
for member in "${members[@]}"; do
  for tool in memcheck racecheck initcheck synccheck; do
    [[ $tool == racecheck && $member != cuda-sm80 ]] && continue
    step "$tool.$member" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/bin/tilemamba" check --all \
      --backend "$member" "$here"/tests/golden/{minimal,varlen_with_documents,mild_fp32,chunk_states}.safetensors
    # Many heads of a group: what is made for all of them.
    [[ $member == cuda-sm90 ]] && step "$tool.$member.heads" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      env TILEMAMBA_TEST_DRAWS=0 "$build/bin/tilemamba_cuda_tests" --gtest_brief=1 --gtest_filter='*ManyHeadsOfAGroup/cuda_sm90_automatic*'
  done
done

step times 300 bash "$here/bench/run_gpu.sh" "$build" "$out"
nvidia-smi --query-gpu=clocks.sm,clocks.mem --format=csv,noheader >>"$out/device.txt"
exit "$failed"
