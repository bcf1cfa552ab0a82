#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's performance section, from a committed result file.

readme_section.py RESULTS.json   writes it between README's markers, the first of which then names the file
readme_section.py --check        whether it is what the file that the marker names gives

--readme FILE: another file than README.md; what its marker names is relative to its folder.

Exit code: 0; 1 if --check finds a difference; 2 for a file or markers that cannot be read; 77 if there is nothing to check yet.
"""
import argparse
import re
import sys
from pathlib import Path

import results_file
import table

BEGIN, END = "<!-- bench/readme_section.py", "<!-- end of bench/readme_section.py -->"
SECTION = re.compile(rf"({re.escape(BEGIN)} ?(\S*) -->\n)(.*?)({re.escape(END)})", re.DOTALL)


def taken(schedules):
    """What a call gets that forces nothing."""
    return schedules["automatic"] if "automatic" in schedules else schedules[table.fastest(schedules)]


def by_machine(measured):
    """{(level, backend, threads): {(set, shape): schedules}}"""
    machines = {}
    for place, shapes in measured.places.items():
        cases = machines.setdefault((place.level, place.backend, place.threads), {})
        cases.update({(place.set, shape): schedules for shape, schedules in shapes.items()})
    return machines


def best_machine(machines):
    """The one with the most threads; of those, the fastest."""
    return max(machines, key=lambda at: (at[2], table.geometric_mean([table.rate(taken(s)) for s in machines[at].values()])))


def gain_line(what, ratios):
    if not ratios:
        return []
    return [f"{what}: {table.geometric_mean(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}, "
            f"{len(ratios)} shape{'s' if len(ratios) > 1 else ''})"]


def ratios_of(before, after):
    """before, after: {case: schedules}"""
    return [taken(before[case]).median / taken(schedules).median for case, schedules in after.items() if case in before]


def gain_lines(measured):
    """A line for each thing that can be compared, of the best machine: geometric mean and range of the gains over all shapes."""
    machines = by_machine(measured)
    best = level, backend, threads = best_machine(machines)
    cases, lines = machines[best], []
    f32 = {(set_name, shape._replace(dtype="bf16")): schedules
           for (set_name, shape), schedules in cases.items() if shape.dtype == "f32"}
    lines += gain_line("bf16 instead of f32", ratios_of(f32, cases))
    if threads > 1:
        alone = machines.get((level, backend, 1), {})
        lines += gain_line(f"{results_file.threads_in_words(threads)} instead of 1", ratios_of(alone, cases))
    for other in sorted(machines):
        if other[0] != level and other[1:] == best[1:]:
            lines += gain_line(f"{level} instead of {other[0]}", ratios_of(machines[other], cases))
    staged = {case: {name: result for name, result in schedules.items() if name.startswith("staged/")}
              for case, schedules in cases.items()}
    lines += gain_line("the planner's choice instead of the published schedule, `staged`",
                       ratios_of({case: schedules for case, schedules in staged.items() if schedules}, cases))
    peers = {}
    for (peer_level, peer_threads, *case), results in measured.peers.items():
        if (peer_level, peer_threads) == (level, threads):
            for peer, result in results.items():
                peers.setdefault(peer, {})[tuple(case)] = {"automatic": result}
    for peer, peer_cases in sorted(peers.items()):
        lines += gain_line(f"instead of {peer}", ratios_of(peer_cases, cases))
    losses = [plan[1] for plan in map(table.planner, cases.values()) if plan]
    if losses:
        lines.append(f"the planner's choice beside the fastest schedule: {(table.geometric_mean(losses) - 1) * 100:.1f} % slower "
                     f"in the mean, {(max(losses) - 1) * 100:.1f} % at worst")
    return lines


def size_table(measured):
    machines = by_machine(measured)
    level, backend, threads = best_machine(machines)
    columns = [(dtype, count) for dtype in ("f32", "bf16", "f16")
               for count in sorted({at[2] for at in machines if at[:2] == (level, backend)})
               if any(case[1].dtype == dtype for case in machines[level, backend, count])]
    rows = {}
    for count in {count for _, count in columns}:
        for (set_name, shape), schedules in machines[level, backend, count].items():
            if set_name == "sizes":
                rows.setdefault(shape.sizes, {})[shape.dtype, count] = taken(schedules)
    lines = [["shape", *(", ".join(filter(None, (dtype, results_file.threads_in_words(count)))) for dtype, count in columns),
              "of sgemm", "x floor"]]
    for sizes, cells in rows.items():
        result = cells.get((columns[0][0], threads))
        least = table.floor(measured, (level, threads), result) if result else None
        lines.append([sizes, *(table.figures(table.rate(cells[column])) if column in cells else "" for column in columns),
                      f"{result.row['of_sgemm']:.2f}" if result and "of_sgemm" in result.row else "",
                      f"{result.median / least:.2f}" if least else ""])
    kept = [index for index in range(len(lines[0])) if any(line[index] for line in lines[1:])]
    lines = [[line[index] for index in kept] for line in lines]
    lines.insert(1, ["---"] * len(kept))
    last = f"{columns[0][0]} on {results_file.threads_in_words(threads) or level}"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else "", last


def section(measured, file):
    """@param file the result file's path, as the text is to give it."""
    context = measured.contexts[0]
    level, backend, threads = best_machine(by_machine(measured))
    levels = list(dict.fromkeys(place.level for place in measured.places))
    where = ", ".join(filter(None, (f"`{backend}`", level if threads else "")))
    commit, _, changed = str(context.get("commit", "")).partition("-")
    said = [str(context.get("date", ""))[:10], *(str(context[key]) for key in ("compiler", "blas") if key in context),
            f"commit {commit[:10]}" if commit else "", "with changes" if changed else ""]
    machine = context.get("cpu", context.get("device", level))
    sizes, last = size_table(measured)
    lines = ["### Results", "", f"{machine}: {where}; {', '.join(filter(None, said))}.", ""]
    if sizes:
        lines += ["Million token-heads a second (B T H : time), with the planner's choice, medians of repetitions:", "", sizes, ""]
        notes = [text for column, text in (("of sgemm", "`of sgemm`: the share of sgemm's GFLOP/s"),
                                           ("x floor", "`x floor`: the time as a multiple of the least possible one"))
                 if column in sizes.partition("\n")[0]]
        lines += [f"{'; '.join(notes)}; both for {last}." if len(notes) == 2 else f"{notes[0]}; for {last}."] if notes else []
    lines += ["", "Gains over all shapes measured, as geometric means:", "", *(f"- {line}" for line in gain_lines(measured)), ""]
    arguments = " ".join(levels) if len(levels) > 1 and threads else ""
    lines += ["Reproduced by, on a machine with nothing else to do:", "",
              f"    bench/run_cpu.sh build/release {Path(file).parent.as_posix()} {arguments}".rstrip(),
              f"    bench/report.py {file} -o report.html    # every case, with pictures",
              f"    bench/readme_section.py {file}    # this section", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--readme", type=Path, default=Path(__file__).parent.parent / "README.md")
    arguments = parser.parse_args()
    if (arguments.results is None) != arguments.check:
        parser.error("either a result file or --check")
    try:
        text = arguments.readme.read_text(encoding="utf-8")
        found = SECTION.search(text)
        if not found:
            raise results_file.BadFile(f"{arguments.readme}: lacks the markers '{BEGIN} -->' and '{END}'")
        root = arguments.readme.parent
        if arguments.check and not found[2]:
            committed = sorted((root / "bench/results").glob("*.json"))
            if committed:
                raise results_file.BadFile(f"{arguments.readme}: has no section yet: bench/readme_section.py {committed[0]}")
            print("*** SKIPPED: no results are committed yet ***")
            return 77
        path = root / found[2] if arguments.check else Path(arguments.results)
        if not path.resolve().is_relative_to(root.resolve()):
            raise results_file.BadFile(f"{path}: is not below {arguments.readme}'s folder, so that it cannot be committed with it")
        file = path.resolve().relative_to(root.resolve()).as_posix()
        measured = table.load(path)
        if not measured.places:
            raise results_file.BadFile(f"{path}: holds no results of a backend")
        new = f"{text[:found.start()]}{BEGIN} {file} -->\n{section(measured, file)}{END}{text[found.end():]}"
    except (OSError, UnicodeDecodeError, results_file.BadFile) as error:
        print(f"readme_section.py: {error}", file=sys.stderr)
        return 2
    if arguments.check:
        if new != text:
            print(f"readme_section.py: {arguments.readme}'s section is not what {file} gives: bench/readme_section.py {file}",
                  file=sys.stderr)
        return int(new != text)
    arguments.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
