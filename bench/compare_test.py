# SPDX-License-Identifier: Apache-2.0
"""Tests of compare.py, table.py, report.py, readme_section.py and the reading of result files."""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

here = Path(__file__).parent
A = "tokens/kokkos-openmp/fused/q64/f32/B:1/T:64/H:8/P:64/G:1/N:128"
B = A.replace("fused/q64", "recurrent/r16")
AUTOMATIC = A.replace("fused/q64", "automatic")
STAGED = A.replace("fused", "staged")


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


def with_roofs(run):
    """The run with FLOP and bytes of its calls, sgemm (50 GFLOP/s) and copy (10 GB/s)."""
    for row in run["benchmarks"]:
        row |= {"flop": 1e6, "bytes": 2e4}
    roofs = run_of({"sgemm/1024": [40e3], "memory/copy": [20e3]}, int(run["context"]["threads"]))["benchmarks"]
    return run | {"benchmarks": [row | {"GFLOP/s": 50.0, "GB/s": 10.0} for row in roofs] + run["benchmarks"]}


def grid_of(microseconds, name):
    """{a name of the grid: [microseconds of it]} for two lengths of two states."""
    start = name.replace("tokens/", "grid/").replace("B:1", "B:4")
    return {start.replace("T:64", f"T:{T}").replace("N:128", f"N:{N}"): [microseconds * T / 1024]
            for N in (64, 128) for T in (1024, 2048)}


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
        self.assertEqual(self.script("report.py", "nowhere.json", "-o", "nowhere.html")[0], 2)

    def test_names_and_counters_that_are_not_tilemamba_benchs_are_named(self):
        row = run_of({A: [1]})["benchmarks"][0]
        for wrong in ({"run_name": "BM_Sort/64"}, {"run_name": A.replace("N:128", "N:many")}, {"run_name": A.replace("/G:1", "")},
                      {"run_name": "memory/copy"}, {"token_heads/s": None}, {"token_heads/s": 0}, {"flop": "1"},
                      {"run_name": AUTOMATIC, "label": None}):
            with self.subTest(wrong=wrong):
                file = self.file(run_of({}) | {"benchmarks": [row | wrong]})
                for script in (["table.py", file], ["report.py", file, "-o", str(self.folder / "report.html")]):
                    code, _, error = self.script(*script)
                    self.assertEqual(code, 2)
                    self.assertIn(f"file.json: {wrong.get('run_name', A)}: its name or counters", error)
        self.assertFalse((self.folder / "report.html").exists())

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

    def report(self, content, *more):
        output = self.folder / "report.html"
        code, _, error = self.script("report.py", self.file(content), "-o", str(output), *more)
        self.assertEqual(code, 0, error)
        text = output.read_text(encoding="utf-8")
        self.assertNotRegex(text, r"https?://|<link|@import|src=", "the page needs something else")
        pictures = [ElementTree.fromstring(picture) for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
        coordinates = [float(number) for picture in pictures for item in picture.iter() for name in ("x", "y", "cx", "cy", "width")
                       if (number := item.get(name))]
        self.assertTrue(all(0 <= number <= 1000 for number in coordinates), "something is drawn outside of its picture")
        return text

    def test_the_report_has_every_picture(self):
        grid = grid_of(200, A) | grid_of(300, STAGED)
        text = self.report({"runs": [with_roofs(run_of({A: [400]}, threads=1)),
                                     with_roofs(run_of({A: [200], B: [100], AUTOMATIC: [200], **grid}))]})
        for expected in ("a CPU", "copy: 10 GB/s", "sgemm: 50 GFLOP/s", "5 GFLOP/s at 50 FLOP/byte",
                         "<title>N 64, T 2048: 1.50 times as fast, with fused/q64</title>",
                         "speed-up over staged", "f32, 2 threads, x86-64-v4, kokkos-openmp", "100.0 %",
                         "2 threads, x86-64-v4, kokkos-openmp: 100.0 % in the mean of 1",
                         # 1e6 FLOP at 50 GFLOP/s take 20 us, 2e4 bytes 2 us; the fastest takes 100 us
                         "<td>0.1</td>", "<td>0.02</td><td>5.00</td>"):
            self.assertIn(expected, text)

    def test_the_report_does_without_what_a_file_does_not_have(self):
        text = self.report(run_of({A: [200]}))
        for expected in ("no several lengths of the same shape", "no several lengths of the published grid with staged",
                         "lack the counters flop and bytes", "The planner&#x27;s choices are not in the file"):
            self.assertIn(expected.replace("&#x27;", "'"), text)

    def test_the_report_of_a_device_with_a_peer(self):
        names = {name.replace("kokkos-openmp", "cuda-sm90"): time for name, time in grid_of(200, A).items()}
        rivals = {name.replace("kokkos-openmp/fused/q64", "<rival>/peer"): [3 * time[0]] for name, time in grid_of(200, A).items()}
        run = run_of(names | rivals)
        run["context"] = {"device": "a GPU"}
        run["benchmarks"] = [row | {"error_of_bar": 0.25} for row in run["benchmarks"]]
        text = self.report(run)
        for expected in ("tilemamba on a GPU", "speed-up over &lt;rival&gt;", "3.00 times as fast, with fused/q64", "error_of_bar",
                         "instead of &lt;rival&gt;: 3.00 times as fast (3.00 to 3.00, 4 shapes)", "f32, a GPU, cuda-sm90"):
            self.assertIn(expected, text)
        self.assertIn("published grid with staged", self.report(run, "--baseline", "staged"))

    def gpu_run(self):
        """Of a GPU with a peer, packed sequences, errors, kernels and roofs; a large call has the planner's choice alone."""
        ours = {name.replace("kokkos-openmp", "cuda-sm90"): time for name, time in grid_of(200, A).items()}
        ours |= {name.replace("fused/q64", "automatic"): time for name, time in ours.items()}
        large = AUTOMATIC.replace("tokens/kokkos-openmp", "varlen/cuda-sm90").replace("N:128", "N:128/S:8")
        theirs = {name.replace("kokkos-openmp/fused/q64", "rival/peer"): [3 * time[0]] for name, time in grid_of(200, A).items()}
        theirs[large.replace("cuda-sm90/automatic", "rival/peer")] = [500]
        run = run_of(ours | {large: [100]} | theirs)
        for row in run["benchmarks"]:
            row |= {"flop": 1e6, "bytes": 2e4, "error_y": 1e-3}
        roofs = run_of({"matmul/bf16": [40e3], "memory/copy": [20e3]})["benchmarks"]
        run["benchmarks"] += [row | {"GFLOP/s": 50.0, "GB/s": 10.0} for row in roofs]
        for row in run["benchmarks"]:
            row["run_name"] = row["run_name"].replace("/real_time", "/manual_time")
        kernels = [{"shape": "f32 B 4 T 1024", "of": "rival", "us": {"_slow_kernel": 30.0, "_other": 5.0}}]
        return run | {"context": {"device": "a GPU", "driver": "580", "date": "2026-01-02T03:04"}, "kernels": kernels}

    def test_the_report_of_a_gpu(self):
        text = self.report({"runs": [self.gpu_run()]})
        for expected in ("rival, f32 B 4 T 1024: 35 us", "slow_kernel", "30 us", "bf16 matmul", "Packed sequences",
                         "f32 B 1 T 64 H 8 P 64 G 1 N 128 S 8", "relative error of y", "speed-up over rival"):
            self.assertIn(expected, text)
        self.assertNotIn("sgemm: 50", text)

    def test_runs_that_are_joined_keep_their_kernels(self):
        file = self.file(self.gpu_run())
        joined = json.loads(self.script("results_file.py", file, file)[1])
        self.assertEqual([run["kernels"][0]["us"]["_other"] for run in joined["runs"]], [5.0, 5.0])

    def test_readme_has_a_section_for_each_machine(self):
        (self.folder / "bench/results").mkdir(parents=True)
        cpu = self.file(with_roofs(run_of({A: [400], AUTOMATIC: [400]})), "bench/results/cpu-2026-01-01.json")
        gpus = [self.file(self.gpu_run(), f"bench/results/gpu-2026-01-0{day}.json") for day in (2, 3)]
        readme = self.readme("before\n<!-- bench/readme_section.py -->\n<!-- end of bench/readme_section.py -->\nafter\n")
        for file in (cpu, *gpus):
            self.assertEqual(self.script("readme_section.py", file, "--readme", str(readme)), (0, "", ""))
        text = readme.read_text(encoding="utf-8")
        for expected in ("### Results\n", "### Results: a GPU\n", "a GPU: `cuda-sm90`; 2026-01-02, driver 580.",
                         "| shape | ms | x floor | rival, ms | rival : ours |",
                         "| grid B 4 T 1024 H 8 P 64 G 1 N 64 | 0.2000 | 10.00 | 0.6000 | 3.00 |",
                         "| varlen B 1 T 64 H 8 P 64 G 1 N 128 S 8 | 0.1000 | 5.00 | 0.5000 | 5.00 |",
                         "    bench/run_gpu.sh build/cuda bench/results\n", "<!-- end of bench/readme_section.py -->\nafter\n"):
            self.assertIn(expected, text)
        self.assertEqual(re.findall("readme_section.py (\\S+) -->", text), ["bench/results/cpu-2026-01-01.json", "bench/results/gpu-2026-01-03.json"])
        check = ("readme_section.py", "--check", "--readme", str(readme))
        self.assertEqual(self.script(*check)[0], 0)
        self.readme(text.replace("| 0.6000 |", "| 0.7000 |"))
        self.assertIn("is not what bench/results/gpu-2026-01-03.json gives", self.script(*check)[2])

    def readme(self, text):
        path = self.folder / "README.md"
        path.write_text(text, encoding="utf-8")
        return path

    def test_the_section_of_readme(self):
        sizes = {name.replace("tokens/", "sizes/"): time for name, time in {A: [400], STAGED: [800], AUTOMATIC: [400]}.items()}
        joined = {"runs": [with_roofs(run_of(sizes, threads=1)),
                           with_roofs(run_of({name: [time[0] / 2] for name, time in sizes.items()}))]}
        readme = self.readme("before\n<!-- bench/readme_section.py -->\n<!-- end of bench/readme_section.py -->\nafter\n")
        results = self.folder / "bench/results"
        check = ("readme_section.py", "--check", "--readme", str(readme))
        code, output, _ = self.script(*check)
        self.assertEqual(code, 77)
        self.assertIn("no results are committed", output)

        results.mkdir(parents=True)
        file = self.file(joined, "bench/results/cpu.json")
        code, _, error = self.script(*check)
        self.assertEqual(code, 2)
        self.assertIn("has no section yet", error)

        self.assertEqual(self.script("readme_section.py", file, "--readme", str(readme)), (0, "", ""))
        text = readme.read_text(encoding="utf-8")
        for expected in ("before\n<!-- bench/readme_section.py bench/results/cpu.json -->\n", "-->\nafter\n",
                         "| shape | f32, 1 thread | f32, 2 threads | of sgemm | x floor |",
                         "| B 1 T 64 H 8 P 64 G 1 N 128 | 1.28 | 2.56 | 0.50 | 10.00 |",
                         "- 2 threads instead of 1: 2.00 times as fast (2.00 to 2.00, 1 shape)\n",
                         "`staged`: 2.00 times as fast", "0.0 % slower in the mean, 0.0 % at worst",
                         "    bench/run_cpu.sh build/release bench/results\n",
                         "    bench/readme_section.py bench/results/cpu.json "):
            self.assertIn(expected, text)
        self.assertNotIn(str(self.folder), text)
        self.assertEqual(self.script(*check)[0], 0)
        self.readme(text.replace("2.56", "9.99"))
        code, _, error = self.script(*check)
        self.assertEqual(code, 1)
        self.assertIn("is not what bench/results/cpu.json gives", error)
        self.script("readme_section.py", file, "--readme", str(readme))
        self.assertEqual(readme.read_text(encoding="utf-8"), text)

    def test_a_section_that_cannot_be_made_leaves_readme_alone(self):
        empty = "<!-- bench/readme_section.py -->\n<!-- end of bench/readme_section.py -->"
        for text, results, reason in (("no markers", run_of({A: [1]}), "lacks the markers"), (empty, "{", "is not JSON"),
                                      (empty, with_roofs(run_of({})), "holds no results of a backend")):
            readme = self.readme(text)
            code, _, error = self.script("readme_section.py", self.file(results), "--readme", str(readme))
            self.assertEqual(code, 2)
            self.assertIn(reason, error)
            self.assertEqual(readme.read_text(encoding="utf-8"), text)
        self.readme("<!-- bench/readme_section.py gone.json -->\n<!-- end of bench/readme_section.py -->")
        self.assertEqual(self.script("readme_section.py", "--check", "--readme", str(readme))[0], 2)


if __name__ == "__main__":
    unittest.main()
