#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two result files of bench/run_cpu.sh or tilemamba_bench.

compare.py BEFORE AFTER [--fail-slower PERCENT]

For each benchmark: the ratio of the median times, after : before, and its bounds, from the repetitions: fastest after : slowest
before, and slowest after : fastest before. What is `slower` or `faster` is so beyond noise: its bounds leave out 1, which means
that not one repetition of the one file was as fast as one of the other. Fewer than three repetitions say nothing about noise:
then there are no bounds and `?` stands there.

Exit code: 0; 1 if --fail-slower is given and something became slower by more than PERCENT, beyond noise where noise is known;
2 if a file is none, or the two have nothing in common.
"""
import argparse
import math
import sys

import results_file

FEWEST_REPETITIONS = 3


class Comparison:
    def __init__(self, before, after):
        self.before, self.after = before.median, after.median
        self.ratio = self.after / self.before
        self.noise_known = min(len(before.times), len(after.times)) >= FEWEST_REPETITIONS
        self.low = min(after.times) / max(before.times)
        self.high = max(after.times) / min(before.times)

    @property
    def bounds(self):
        return f"{self.low:.3f} - {self.high:.3f}" if self.noise_known else "?"

    @property
    def verdict(self):
        if not self.noise_known:
            return "?"
        return "slower" if self.low > 1 else "faster" if self.high < 1 else ""

    def slower_than(self, percent):
        return self.ratio > 1 + percent / 100 and self.verdict in ("slower", "?")


def describe(results, key):
    return ", ".join(sorted({str(context[key]) for context in results.contexts if key in context})) or "not said"


def print_comparison(before, after):
    """@return Comparisons by key."""
    for key in ("cpu", "compiler", "blas", "commit"):
        was, is_now = describe(before, key), describe(after, key)
        print(f"{key + ':':10}{was}" if was == is_now else f"{key + ':':10}{was}  ->  {is_now}")

    common = {key: Comparison(before.results[key], after.results[key]) for key in before.results if key in after.results}
    print(f"\n{'before, us':>14}{'after, us':>14}{'ratio':>8}  {'bounds':15}{'':8}")
    for key, found in common.items():
        print(f"{found.before:14.2f}{found.after:14.2f}{found.ratio:8.3f}  {found.bounds:15}{found.verdict:8}{key}")
    if common:
        mean = math.exp(sum(math.log(found.ratio) for found in common.values()) / len(common))
        verdicts = [found.verdict for found in common.values()]
        print(f"\ngeometric mean of {len(common)} ratios: {mean:.3f}; "
              f"{verdicts.count('slower')} slower, {verdicts.count('faster')} faster beyond noise")
        if "?" in verdicts:
            print(f"{verdicts.count('?')} with fewer than {FEWEST_REPETITIONS} repetitions in a file: their noise is not known")
    for name, one, other in (("before", before, after), ("after", after, before)):
        for key in one.results:
            if key not in other.results:
                print(f"only {name}: {key}")
    return common


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--fail-slower", type=float, metavar="PERCENT")
    arguments = parser.parse_args()
    try:
        before, after = results_file.read(arguments.before), results_file.read(arguments.after)
    except results_file.BadFile as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    common = print_comparison(before, after)
    if not common:
        print("compare.py: the two files have no benchmark in common", file=sys.stderr)
        return 2
    if arguments.fail_slower is None:
        return 0
    slower = [key for key, found in common.items() if found.slower_than(arguments.fail_slower)]
    for key in slower:
        print(f"compare.py: slower by more than {arguments.fail_slower:g} %: {key}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
