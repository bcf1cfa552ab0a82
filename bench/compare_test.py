# SPDX-License-Identifier: Apache-2.0
"""Tests of compare.py, table.py and the reading of result files."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

here = Path(__file__).parent
A = "tokens/kokkos-openmp/fused/q64/f32/B:1/T:64/H:8/P:64/G:1/N:128"
B = A.replace("fused/q64", "recurrent/r16")
AUTOMATIC = A.replace("fused/q64", "automatic")


def run_of(times, threads=2, **more):
    """A run as Google Benchmark writes it. times: {name: [microseconds of each repetition]}"""
    rows = []
    for name, repetitions in times.items():
        rows += [{"name": f"{name}/real_time", "run_name": f"{name}/real_time", "run_type": "iteration", "repetition_index": index,
                  "iterations": 10, "real_time": time, "cpu_time": time, "time_unit": "us", "label": "fused/q64",
                  "token_heads/s": 512e6 / time, "GFLOP/s": 1e4 / time, "of_sgemm": 0.5} for index, time in enumerate(repetitions)]
        rows.append({"name": f"{name}/real_time_mean", "run_name": f"{name}/real_time", "run_type": "aggregate",
                     "aggregate_name": "mean", "real_time": 1e9, "time_unit": "us"})
    return {"context": {"cpu_level": "x86-64-v4", "threads": str(threads), "cpu": "a CPU", "host_name": "secret",
                        "executable": "/home/secret"}, "benchmarks": rows} | more


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def file(self, content, name="file.json"):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def script(self, name, *arguments):
        """(exit code, standard output, standard error)"""
        done = subprocess.run([sys.executable, here / name, *arguments], capture_output=True, text=True, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def compare(self, before, after, *more):
        return self.script("compare.py", self.file(before, "before.json"), self.file(after, "after.json"), *more)

    def line_of(self, output, name):
        return next(line for line in output.splitlines() if line.endswith(name))

    def test_a_difference_beyond_noise_has_a_verdict(self):
        before, after = run_of({A: [100, 101, 102], B: [100, 110, 120]}), run_of({A: [200, 202, 206], B: [50, 55, 60]})
        code, output, _ = self.compare(before, after)
        self.assertEqual(code, 0)
        self.assertRegex(self.line_of(output, A), r"101\.00 +202\.00 +2\.000 +1\.961 - 2\.060 +slower")
        self.assertRegex(self.line_of(output, B), r"0\.500 +0\.417 - 0\.600 +faster")
        self.assertIn("geometric mean of 2 ratios: 1.000; 1 slower, 1 faster", output)

    def test_a_difference_within_noise_has_none_and_does_not_fail(self):
        code, output, _ = self.compare(run_of({A: [100, 100, 130]}), run_of({A: [120, 125, 126]}), "--fail-slower", "5")
        self.assertEqual(code, 0)
        self.assertNotRegex(self.line_of(output, A), "slower|faster")

    def test_fail_slower(self):
        before, after = run_of({A: [100, 101, 102]}), run_of({A: [110, 111, 112]})
        self.assertEqual(self.compare(before, after)[0], 0)
        self.assertEqual(self.compare(before, after, "--fail-slower", "20")[0], 0)
        code, _, error = self.compare(before, after, "--fail-slower", "5")
        self.assertEqual(code, 1)
        self.assertIn(A, error)

    def test_without_repetitions_noise_is_said_to_be_unknown(self):
        before, after = run_of({A: [100]}), run_of({A: [150]})
        code, output, _ = self.compare(before, after)
        self.assertEqual(code, 0)
        self.assertRegex(self.line_of(output, A), r"1\.500 +\? +\?")
        self.assertIn("their noise is not known", output)
        self.assertEqual(self.compare(before, after, "--fail-slower", "20")[0], 1)

    def test_what_is_in_one_file_only_is_named(self):
        code, output, _ = self.compare(run_of({A: [1], B: [1]}), run_of({A: [1], AUTOMATIC: [1]}))
        self.assertEqual(code, 0)
        self.assertIn(f"only before: x86-64-v4, 2 threads: {B}", output)
        self.assertIn(f"only after: x86-64-v4, 2 threads: {AUTOMATIC}", output)

    def test_nothing_in_common_is_an_error(self):
        code, _, error = self.compare(run_of({A: [1]}), run_of({A: [1]}, threads=1))
        self.assertEqual(code, 2)
        self.assertIn("no benchmark in common", error)

    def test_files_that_are_none_are_named_with_the_reason(self):
        row = run_of({A: [1]})["benchmarks"][0]
        failed = row | {"error_occurred": True, "error_message": "no memory"}
        context = run_of({})["context"]
        for content, reason in {
                "": "is not JSON",
                '{"context": {}, "benchmarks": [': "is not JSON",
                "[1, 2]": "is not a result file",
                '{"runs": []}': "is not a result file",
                '{"context": {"threads": "2"}}': "is not a result file",
                json.dumps(run_of({})): "holds no benchmarks",
                json.dumps({"context": context, "benchmarks": [7]}): "lacks what tilemamba_bench writes",
                json.dumps({"context": {}, "benchmarks": [row]}): "lacks what tilemamba_bench writes",
                json.dumps({"context": context, "benchmarks": [row | {"time_unit": "years"}]}): "lacks what tilemamba_bench writes",
                json.dumps({"context": context, "benchmarks": [row | {"real_time": "fast"}]}): "lacks what tilemamba_bench writes",
                json.dumps({"context": context, "benchmarks": [row | {"real_time": 0}]}): "took 0",
                json.dumps({"context": context, "benchmarks": [failed]}): "no memory",
        }.items():
            with self.subTest(content=content[:80]):
                code, _, error = self.compare(run_of({A: [1]}), content)
                self.assertEqual(code, 2)
                self.assertIn("after.json: ", error)
                self.assertIn(reason, error)
        code, _, error = self.script("compare.py", "nowhere.json", "nowhere.json")
        self.assertEqual(code, 2)
        self.assertIn("nowhere.json: cannot be read", error)
        self.assertEqual(self.script("table.py", "nowhere.json")[0], 2)

    def test_runs_are_joined_without_what_tells_of_their_user(self):
        one, two = self.file(run_of({A: [8]}, threads=1), "one.json"), self.file(run_of({A: [4]}), "two.json")
        code, output, _ = self.script("results_file.py", one, two)
        self.assertEqual(code, 0)
        self.assertNotIn("secret", output)
        code, compared, _ = self.compare(output, output)
        self.assertEqual(code, 0)
        self.assertIn(f"1 thread: {A}", compared)
        self.assertIn(f"2 threads: {A}", compared)

    def test_the_table_has_rates_the_planners_loss_and_gains(self):
        bf16 = AUTOMATIC.replace("f32", "bf16")
        joined = {"runs": [run_of({A: [512], AUTOMATIC: [512], bf16: [256]}, threads=1),
                           run_of({A: [250, 256, 999], B: [128], AUTOMATIC: [256]})]}
        code, output, _ = self.script("table.py", self.file(joined))
        self.assertEqual(code, 0)
        self.assertIn("| f32 B 1 T 64 H 8 P 64 G 1 N 128 | 2 | **4** | 2 | fused/q64 | 100.0 % | 78.1 | 0.50 |", output)
        self.assertIn("| f32 B 1 T 64 H 8 P 64 G 1 N 128 | **1** | 1 | fused/q64 | 0.0 % |", output)
        self.assertIn("kokkos-openmp, 2 threads, x86-64-v4: from 1 thread\n\n"
                      "| shape | M token-heads/s | then | gain |\n|---|---|---|---|\n"
                      "| f32 B 1 T 64 H 8 P 64 G 1 N 128 | 1 | 2 | 2.00 |", output)
        self.assertIn("from f32 to bf16", output)


if __name__ == "__main__":
    unittest.main()
