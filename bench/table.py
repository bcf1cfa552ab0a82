#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a result file of bench/run_cpu.sh or tilemamba_bench as Markdown.

table.py RESULTS

For each level of instructions, backend and number of threads, a table a set: million token-heads a second of every schedule and
policy and of the planner's choice (`automatic`), each from the repetition with the median time; the fastest schedule in bold; what
the planner chose and what that costs beside the fastest (a choice that is the fastest costs nothing, whatever noise says); the
fastest one's GFLOP/s and share of sgemm. Then what bf16 and more threads bring, with the planner's choices.
"""
import math
import sys
from typing import NamedTuple

import results_file

COUNTERS = ("GFLOP/s", "of_sgemm", "flop", "bytes")  # which a file may lack
SETS = {"sizes": "One sequence", "tokens": "Short and long sequences", "models": "Models", "grid": "The published grid",
        "off-grid": "Sizes that divide nothing", "varlen": "Packed sequences (S of them)", "slow": "Slow decay",
        "invariant": "batch_invariant"}


class Shape(NamedTuple):
    dtype: str
    model: str
    sizes: str

    def __str__(self):
        return f"{self.dtype} {self.model} {self.sizes}".replace("  ", " ")

    @property
    def size(self):
        """{"B": batch, "T": tokens, ...}"""
        words = self.sizes.split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))


class Place(NamedTuple):
    level: str
    backend: str
    threads: int
    set: str

    def __str__(self):
        where = ", ".join(filter(None, (self.backend, results_file.threads_in_words(self.threads), self.level)))
        return f"{SETS.get(self.set, self.set)}: {where}"


BEST_COPY = {"NVIDIA H200": 4300.0}  # GB/s seen there; a run's copy that shows less is no roof


class Measured(NamedTuple):
    contexts: list
    places: dict  # {place: {shape: {schedule: result}}}
    peers: dict  # {(level, threads, set, shape): {peer: result}}
    sgemm: dict  # {(level, threads): GFLOP/s}; of a GPU, a product of bf16 matrices
    copy: dict  # {(level, threads): GB/s}, bytes read and written
    kernels: list  # as results_file says


def parse(name):
    """(set, backend, schedule, shape); the schedule with its policy. A peer is a backend whose schedule is `peer`."""
    set_name, backend, *rest = name.split("/")
    sizes = [part for part in rest if ":" in part]
    words = [part for part in rest if ":" not in part]
    schedule_parts = 1 if words[0] in ("automatic", "peer") else 2
    dtype, *model = words[schedule_parts:]
    return set_name, backend, "/".join(words[:schedule_parts]), Shape(dtype, "".join(model), " ".join(sizes).replace(":", " "))


def load(path):
    """@raise results_file.BadFile also for names and counters that are not those of tilemamba_bench."""
    contexts, results, kernels = results_file.read(path)
    measured = Measured(contexts, {}, {}, {}, {}, kernels)
    for key, result in results.items():
        machine = key.level, key.threads
        try:
            if key.name.startswith(("sgemm/", "matmul/")):
                measured.sgemm[machine] = float(result.row["GFLOP/s"])
            elif key.name == "memory/copy":
                measured.copy[machine] = max(float(result.row["GB/s"]), BEST_COPY.get(key.level, 0.0))
            else:
                set_name, backend, schedule, shape = parse(key.name)
                if "".join(shape.size) not in ("BTHPGN", "BTHPGNS"):
                    raise ValueError(shape.sizes)
                if not result.row["token_heads/s"] > 0:
                    raise ValueError(result.row["token_heads/s"])
                sum(result.row.get(counter, 0) for counter in COUNTERS)  # are numbers
                if schedule == "peer":
                    measured.peers.setdefault((*machine, set_name, shape), {})[backend] = result
                    continue
                if schedule == "automatic":
                    result.row["label"].split("/")
                place = Place(key.level, backend, key.threads, set_name)
                measured.places.setdefault(place, {}).setdefault(shape, {})[schedule] = result
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise results_file.BadFile(f"{path}: {key.name}: its name or counters are not tilemamba_bench's: {error!r}") from error
    return measured


def figures(value):
    """Three of them, without an exponent."""
    return f"{float(f'{value:.3g}'):.15g}"


def rate(result):
    """Million token-heads a second; the counter is a total a second, so it goes with the row's own time."""
    return result.row["token_heads/s"] * 1e-6


def work_of(result):
    """(FLOP, bytes) of a call; None if the file does not tell."""
    flop, moved = result.row.get("flop", 0), result.row.get("bytes", 0)
    return (flop, moved) if flop > 0 and moved > 0 else None


def floor(measured, machine, result):
    """The least possible microseconds of a call: its FLOP at sgemm's rate or its bytes at the copy's. None if not known."""
    work, peak, copy = work_of(result), measured.sgemm.get(machine), measured.copy.get(machine)
    return max(work[0] / peak, work[1] / copy) * 1e-3 if work and peak and copy else None


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def fastest(schedules):
    return min((name for name in schedules if name != "automatic"), key=lambda name: schedules[name].median, default=None)


def best(schedules):
    """The fastest one's name; where only the planner's choice was measured, that."""
    return fastest(schedules) or "automatic"


def product(threads):
    """What is called matrix product in texts."""
    return "sgemm" if threads else "bf16 matmul"


def planner(schedules):
    """(its choice, its time : the fastest one's); None if it was not measured."""
    if "automatic" not in schedules or fastest(schedules) is None:
        return None
    choice, best = schedules["automatic"].row["label"], fastest(schedules)
    return choice, 1.0 if choice == best else max(schedules["automatic"].median / schedules[best].median, 1.0)


def markdown(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def print_set(place, shapes, sgemm):
    print(f"### {place}\n")
    if (place.level, place.threads) in sgemm:
        print(f"sgemm: {sgemm[place.level, place.threads]:.0f} GFLOP/s\n")
    columns = sorted({name for schedules in shapes.values() for name in schedules}, key=lambda name: (name == "automatic", name))
    rows, losses = [], []
    for shape, schedules in sorted(shapes.items(), key=lambda item: item[0].dtype != "f32"):
        best, plan = fastest(schedules), planner(schedules)
        row = [str(shape)]
        for name in columns:
            text = f"{rate(schedules[name]):.3g}" if name in schedules else ""
            row.append(f"**{text}**" if name == best else text)
        row += [plan[0], f"{(plan[1] - 1) * 100:.1f} %"] if plan else ["", ""]
        losses += [plan[1]] if plan else []
        of_best = schedules[best].row if best else {}
        for counter, digits in (("GFLOP/s", "3g"), ("of_sgemm", "2f")):
            row.append(f"{of_best[counter]:.{digits}}" if counter in of_best else "")
        rows.append(row)
    markdown(["shape", *columns, "planner", "its loss", "GFLOP/s", "of sgemm"], rows)
    if losses:
        mean = geometric_mean(losses)
        print(f"The planner's loss: {(mean - 1) * 100:.1f} % in the mean, {(max(losses) - 1) * 100:.1f} % at worst.\n")


def print_gains(title, before, after):
    """For the shapes that both have. before, after: {shape: result}"""
    rows = [[str(shape), f"{rate(one):.3g}", f"{rate(after[shape]):.3g}", f"{one.median / after[shape].median:.2f}"]
            for shape, one in before.items() if shape in after]
    if rows:
        print(f"### {title}\n")
        markdown(["shape", "M token-heads/s", "then", "gain"], rows)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] == ["--help"] else 2
    try:
        contexts, places, _, sgemm, *_ = load(sys.argv[1])
    except results_file.BadFile as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 2
    for key in ("cpu", "compiler", "blas", "tilemamba", "commit", "date"):
        values = sorted({str(context[key]) for context in contexts if key in context})
        if values:
            print(f"- {key}: {', '.join(values if key != 'date' else values[:1])}")
    print("\n## Million token-heads a second\n")
    for place, shapes in places.items():
        print_set(place, shapes, sgemm)

    print("## Gains, with the planner's choices\n")
    automatic = {(place, shape): schedules["automatic"]
                 for place, shapes in places.items() for shape, schedules in shapes.items() if "automatic" in schedules}
    for place in places:
        here = {shape: result for (at, shape), result in automatic.items() if at == place}
        bf16 = {shape._replace(dtype="f32"): result for shape, result in here.items() if shape.dtype == "bf16"}
        print_gains(f"{place}: from f32 to bf16", here, bf16)
        if place.threads > 1:
            alone = place._replace(threads=1)
            of_one = {shape: result for (at, shape), result in automatic.items() if at == alone}
            print_gains(f"{place}: from 1 thread", of_one, here)
    return 0


if __name__ == "__main__":
    sys.exit(main())
