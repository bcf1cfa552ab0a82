# SPDX-License-Identifier: Apache-2.0
"""Result files of tilemamba_bench: reading them, and joining several runs in one file.

results_file.py RUN.json...      the runs as one file, on standard output

A run is what Google Benchmark writes. A file of several is {"runs": [run, ...]}. What tells of the machine's user and not of
the machine (its name, paths) is dropped when runs are joined, and so are means and the like of repetitions.

A run's context says what it ran on: `cpu_level` and `threads`, or `device` where that is no CPU. Beside its benchmarks it may have
`kernels`: [{"shape": "bf16 B 4 T ...", "of": whose, "us": {kernel: microseconds of a call}}].
"""
import json
import statistics
import sys
from typing import NamedTuple

MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


class BadFile(Exception):
    """A file that cannot be read or is no result file; its text says which and why."""


def threads_in_words(threads):
    """'' for 0: a device's."""
    return "" if threads == 0 else "1 thread" if threads == 1 else f"{threads} threads"


class Key(NamedTuple):
    level: str  # of the CPU's instructions; a device's name
    threads: int  # 0 on a device
    name: str  # as bench/main.cpp describes it

    def __str__(self):
        return ", ".join(filter(None, (self.level, threads_in_words(self.threads)))) + f": {self.name}"


def key_of(context, name):
    if "device" in context:
        return Key(str(context["device"]), 0, name)
    return Key(str(context["cpu_level"]), int(context["threads"]), name)


class Result:
    """One benchmark: a time for each repetition, counters from the one with the median time."""

    def __init__(self):
        self.samples = []  # (microseconds, Google Benchmark's row)

    @property
    def times(self):
        return [time for time, _ in self.samples]

    @property
    def median(self):
        """Microseconds a call."""
        return statistics.median(self.times)

    @property
    def row(self):
        return sorted(self.samples, key=lambda sample: sample[0])[(len(self.samples) - 1) // 2][1]


class Results(NamedTuple):
    contexts: list
    results: dict  # Key -> Result
    kernels: list


def is_run(run):
    return isinstance(run, dict) and isinstance(run.get("context"), dict) and isinstance(run.get("benchmarks"), list)


def read_runs(path):
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise BadFile(f"{path}: is not JSON (was the run cut short?): {error}") from error
    runs = content.get("runs", [content]) if isinstance(content, dict) else None
    if not isinstance(runs, list) or not runs or not all(map(is_run, runs)):
        raise BadFile(f"{path}: is not a result file: it has no runs with a context and benchmarks")
    return runs


def is_aggregate(row):
    return row.get("run_type") == "aggregate"


def read(path):
    """@raise BadFile for what is unreadable, malformed, failed or empty."""
    runs = read_runs(path)
    results = {}
    for run in runs:
        context = run["context"]
        for row in run["benchmarks"]:
            try:
                if is_aggregate(row):
                    continue
                name = row["run_name"].removesuffix("/real_time").removesuffix("/manual_time")
                if row.get("error_occurred"):
                    raise BadFile(f"{path}: {name} failed: {row.get('error_message', 'no word why')}")
                key = key_of(context, name)
                time = row["real_time"] * MICROSECONDS[row["time_unit"]]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise BadFile(f"{path}: a benchmark or its context lacks what tilemamba_bench writes: {error!r}") from error
            if not time > 0:
                raise BadFile(f"{path}: {name} took {time} us")
            results.setdefault(key, Result()).samples.append((time, row))
    if not results:
        raise BadFile(f"{path}: holds no benchmarks")
    return Results([run["context"] for run in runs], results, [entry for run in runs for entry in run.get("kernels", [])])


def main(paths):
    runs = []
    for run in (run for path in paths for run in read_runs(path)):
        context = {key: value for key, value in run["context"].items() if key not in ("host_name", "executable")}
        rows = ",\n".join(json.dumps(row) for row in run["benchmarks"] if not is_aggregate(row))
        kernels = f',\n"kernels": {json.dumps(run["kernels"])}' if run.get("kernels") else ""
        runs.append(f'{{"context": {json.dumps(context, indent=1)},\n"benchmarks": [\n{rows}\n]{kernels}}}')
    print('{"runs": [' + ",\n".join(runs) + "]}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BadFile as error:
        sys.exit(f"results_file.py: {error}")
