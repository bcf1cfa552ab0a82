#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's performance sections, each from a committed result file.

readme_section.py RESULTS.json   writes one between README's markers, the first of which then names the file. It takes the place of
                                 the section whose file has the same name but for the date, else it becomes the last one
readme_section.py --check        whether each is what the file that its marker names gives

--readme FILE: another file than README.md; what its markers name is relative to its folder.

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


def device_table(measured):
    """Of a GPU: milliseconds of the planner's choice, the floor, each peer; and notes."""
    level, backend, threads = best_machine(by_machine(measured))
    peers = sorted({peer for results in measured.peers.values() for peer in results})
    lines = [["shape", "ms", "x floor", *(f"{peer}, ms" for peer in peers), *(f"{peer} : ours" for peer in peers)]]
    for place, shapes in measured.places.items():
        if (place.level, place.backend, place.threads) != (level, backend, threads):
            continue
        for shape, schedules in shapes.items():
            result = taken(schedules)
            least = table.floor(measured, (level, threads), result)
            found = [measured.peers.get((level, threads, place.set, shape), {}).get(peer) for peer in peers]
            what = f"{place.set} {shape.model} {shape.sizes}".replace("  ", " ")
            lines.append([what, f"{result.median * 1e-3:.4f}", f"{result.median / least:.2f}" if least else "",
                          *(f"{peer.median * 1e-3:.4f}" if peer else "" for peer in found),
                          *(f"{peer.median / result.median:.2f}" if peer else "" for peer in found)])
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(measured, file):
    """@param file the result file's path, as the text is to give it."""
    context = {key: value for of_run in reversed(measured.contexts) for key, value in of_run.items()}
    level, backend, threads = best_machine(by_machine(measured))
    levels = list(dict.fromkeys(place.level for place in measured.places))
    where = ", ".join(filter(None, (f"`{backend}`", level if threads else "")))
    commit, _, changed = str(context.get("commit", "")).partition("-")
    said = [str(context.get("date", ""))[:10], *(str(context[key]) for key in ("compiler", "blas") if key in context and threads),
            *(f"{key} {context[key]}" for key in ("driver", "torch", "triton") if context.get(key)),
            f"commit {commit[:10]}" if commit else "", "with changes" if changed else ""]
    machine = context.get("cpu", context.get("device", level))
    lines = ["### Results" if threads else f"### Results: {level}", "",
             f"{machine}: {where}; {', '.join(filter(None, said))}.", ""]
    if threads:
        sizes, last = size_table(measured)
        if sizes:
            lines += ["Million token-heads a second (B T H : time), with the planner's choice, medians of repetitions:", "", sizes, ""]
            notes = [text for column, text in (("of sgemm", "`of sgemm`: the share of sgemm's GFLOP/s"),
                                               ("x floor", "`x floor`: the time as a multiple of the least possible one"))
                     if column in sizes.partition("\n")[0]]
            both = f"{'; '.join(notes)}; both for {last}." if len(notes) == 2 else ""
            lines += [both or f"{notes[0]}; for {last}."] if notes else []
    else:
        lines += ["bf16, with the planner's choice; the device's time alone (replayed graphs, tensors that take turns so that no cache "
                  "holds them), medians of repetitions; on inputs that every contestant got, each answer checked:", "",
                  device_table(measured), "",
                  "`x floor`: the time as a multiple of the least possible one, by a bf16 matrix product measured in the same run and "
                  "the fastest copy known of this device. S: packed sequences. slow: half of the heads keep their state for thousands of tokens. "
                  "invariant: bits that do not depend on the other sequences."]
    lines += ["", "Gains over all shapes measured, as geometric means:", "", *(f"- {line}" for line in gain_lines(measured)), ""]
    arguments = " ".join(levels) if len(levels) > 1 and threads else ""
    script = "run_cpu.sh build/release" if threads else f"run_gpu.sh build/{backend.partition('-')[0]}"
    lines += ["Reproduced by, on a machine with nothing else to do:", "",
              f"    bench/{script} {Path(file).parent.as_posix()} {arguments}".rstrip(),
              f"    bench/report.py {file} -o report.html    # every case, with pictures",
              f"    bench/readme_section.py {file}    # this section", ""]
    return "\n".join(lines)


def machine_of(file):
    """The name of a result file without its date."""
    return re.sub(r"-\d{4}-\d\d-\d\d$", "", Path(file).stem)


def block(root, path):
    """A section with its markers. @param path of the result file."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise results_file.BadFile(f"{path}: is not below README's folder, {root}, so that it cannot be committed with it")
    file = path.resolve().relative_to(root.resolve()).as_posix()
    measured = table.load(path)
    if not measured.places:
        raise results_file.BadFile(f"{path}: holds no results of a backend")
    return f"{BEGIN} {file} -->\n{section(measured, file)}{END}"


def check(readme, text, blocks):
    """@return the exit code"""
    named = [found for found in blocks if found[2]]
    if not named:
        committed = sorted((readme.parent / "bench/results").glob("*.json"))
        if committed:
            raise results_file.BadFile(f"{readme}: has no section yet: bench/readme_section.py {committed[0]}")
        print("*** SKIPPED: no results are committed yet ***")
        return 77
    for found in named:
        if block(readme.parent, readme.parent / found[2]) != found[0]:
            print(f"readme_section.py: {readme}'s section is not what {found[2]} gives: bench/readme_section.py {found[2]}",
                  file=sys.stderr)
            return 1
    return 0


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
        blocks = list(SECTION.finditer(text))
        if not blocks:
            raise results_file.BadFile(f"{arguments.readme}: lacks the markers '{BEGIN} -->' and '{END}'")
        if arguments.check:
            return check(arguments.readme, text, blocks)
        path = Path(arguments.results)
        new = block(arguments.readme.parent, path)
        same = [found for found in blocks if not found[2] or machine_of(found[2]) == machine_of(path)]
        begin, end = same[0].span() if same else (blocks[-1].end(), blocks[-1].end())
        arguments.readme.write_text(text[:begin] + ("" if same else "\n\n") + new + text[end:], encoding="utf-8")
    except (OSError, UnicodeDecodeError, results_file.BadFile) as error:
        print(f"readme_section.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
