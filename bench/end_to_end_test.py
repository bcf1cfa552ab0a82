# SPDX-License-Identifier: Apache-2.0
"""Runs bench/run_cpu.sh on the shortest calls and reads what it wrote with table.py, report.py and compare.py.

end_to_end_test.py BUILD_FOLDER HAS_BLAS(0 or 1)
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import results_file

here = Path(__file__).parent
build, has_blas = sys.argv[1:]
filter_of_shortest = "--benchmark_filter=^memory|^tokens/.*/B:1/T:1/"


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"{command} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    file = run(here / "run_cpu.sh", build, folder, "--", filter_of_shortest, "--benchmark_min_time=0.001").strip()
    results = results_file.read(file).results
    table = run(sys.executable, here / "table.py", file)
    run(sys.executable, here / "report.py", file, "-o", f"{folder}/report.html")
    report = Path(folder, "report.html").read_text(encoding="utf-8")
    comparison = run(sys.executable, here / "compare.py", file, file, "--fail-slower", "0")

copies = [results.pop(key).row["GB/s"] for key in list(results) if key.name == "memory/copy"]
assert copies and min(copies) > 0, copies
for key, result in results.items():
    assert len(result.times) == 5, f"{key} has {len(result.times)} repetitions"
    counters = {"bytes", "flop", "GFLOP/s", "token_heads/s"} | ({"of_sgemm"} if has_blas == "1" else set())
    for counter in counters:
        assert result.row.get(counter, 0) > 0, f"{key} has no counter {counter}"
    assert ("of_sgemm" in result.row) == (has_blas == "1"), key
names = [key.name for key in results]
for part in ("/automatic/f32/", "/automatic/bf16/", "/recurrent/", "/fused/", "/staged/"):
    assert any(part in name for name in names), f"nothing was measured for {part}: {names}"
assert "| f32 B 1 T 1 H 8 P 64 G 1 N 128 |" in table, table
assert "GB/s" in report and "M token-heads/s" in report, report
assert "geometric mean" in comparison, comparison

program = f"{build}/bin/tilemamba_bench"
assert "--max_tokens" in run(program, "--help")
run(program, "--max_tokens=many", code=2)
run(program, "--no_such_option", code=2)
run(program, "--backend=kokkos", code=1)  # not of a GPU
listed = run(program, "--max_tokens=8192", "--benchmark_list_tests")
assert "/B:4/T:8192/H:8/P:64/G:1/N:512" in listed and "/mamba2-2.7b/B:1/T:2048/H:80/" in listed, listed
