#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes result files of bench/run_cpu.sh or tilemamba_bench as one HTML page with pictures, which needs nothing else.

report.py RESULTS... -o REPORT.html [--baseline NAME]

A section a file (results_file.py joins runs in one): token-heads a second against the length of the sequence, the speed-up over a
baseline on the published grid, the roofline, what the planner's choices cost, and tables of every shape. The roofs and the floor
are from the file's sgemm/... and memory/copy. Results of others are in it as SET/PEER/peer/DTYPE/[MODEL/]B:../T:../...

--baseline: a schedule, or a peer by its name. Default: the peer, where there is one for the grid, else `staged`.

Exit code: 0; 2 for a file that is none.
"""
import argparse
import sys
from pathlib import Path

import charts
import readme_section
import results_file
import table
from charts import Dots, Line, Linear, Logarithmic, Point, Segment, escape

here = Path(__file__).parent
SCHEDULES = ("staged", "fused", "recurrent")
PEER_STYLES, N_STYLES, DASHES = ("peer0", "peer1", "peer2"), ("n0", "n1", "n2", "n3"), ("", " dash1", " dash2", " dash3")
MOST_BARS = 12
ERRORS = "error"  # counters whose names begin so are columns of the tables
TOKENS = "tokens T of a sequence (log scale)"


def where(place):
    return ", ".join(filter(None, (results_file.threads_in_words(place.threads), place.level, place.backend)))


def in_order(places):
    """The most threads and the highest level first; of these, backends as the file has them, the most wanted first."""
    by_level = sorted(places, key=lambda place: place.level, reverse=True)
    return sorted(by_level, key=lambda place: -place.threads)


class Styles:
    """A colour for each schedule and peer, a dash for each policy, the same in all pictures of a file."""

    def __init__(self, measured):
        self.schedules = sorted({name for shapes in measured.places.values() for schedules in shapes.values() for name in schedules
                                 if name != "automatic"}, key=lambda name: (self.family(name), name))
        self.peers = sorted({peer for results in measured.peers.values() for peer in results})

    @staticmethod
    def family(name):
        return SCHEDULES.index(name.split("/")[0]) if name.split("/")[0] in SCHEDULES else len(SCHEDULES)

    def colour(self, name):
        if name in self.peers:
            return PEER_STYLES[self.peers.index(name) % len(PEER_STYLES)]
        return (*SCHEDULES, "other")[self.family(name)]

    def line(self, name):
        if name in self.peers:
            return self.colour(name)
        policies = [other for other in self.schedules if self.family(other) == self.family(name)]
        return self.colour(name) + DASHES[policies.index(name) % len(DASHES)]


def figure(caption, legend, panels, more=""):
    return f'<figure><figcaption>{caption}</figcaption>{legend}<div class="panels {more}">{"".join(panels)}</div></figure>'


def peers_of(measured, place, shape):
    return measured.peers.get((place.level, place.threads, place.set, shape), {})


# ---------------------------------------------------------------------------------------------- rates against tokens


def sequences(measured, set_name):
    """{(place, dtype, all sizes but T): [shape, by T]}, where there are several T."""
    groups = {}
    for place in in_order(measured.places):
        if place.set == set_name:
            for shape in sorted(measured.places[place], key=lambda shape: (shape.dtype != "f32", shape.size["T"])):
                fixed = tuple((name, value) for name, value in shape.size.items() if name != "T")
                groups.setdefault((place, shape.dtype, shape.model, fixed), []).append(shape)
    return {key: shapes for key, shapes in groups.items() if len(shapes) > 1}


def rates(measured, styles, set_name):
    groups = sequences(measured, set_name)
    if not groups:
        return "", 0
    panels, used, every = [], set(), {}  # every: the rates of each size, whose panels share a scale
    for (place, _, model, fixed), shapes in groups.items():
        every.setdefault((model, fixed), [0]).extend(
            table.rate(result) for shape in shapes
            for result in (*measured.places[place][shape].values(), *peers_of(measured, place, shape).values()))
    one_size = len(every) == 1
    for (place, dtype, model, fixed), shapes in sorted(groups.items(), key=lambda group: group[0][2:]):
        lines = {}
        for shape in shapes:
            for name, result in {**measured.places[place][shape], **peers_of(measured, place, shape)}.items():
                tip = f"{name}: {table.figures(table.rate(result))} M token-heads/s, T {shape.size['T']}, {result.median:.4g} us"
                if name == "automatic":
                    tip = f"planner: {result.row['label']}, T {shape.size['T']}"
                lines.setdefault(name, []).append(Point(shape.size["T"], table.rate(result), tip))
        used |= set(lines)
        marks = [Line(lines[name], styles.line(name)) for name in (*styles.schedules, *styles.peers) if name in lines]
        marks += [Dots(lines["automatic"], "", "ring")] if "automatic" in lines else []
        size = "" if one_size else f"{model} N {dict(fixed)['N']}, ".lstrip()
        x_axis = Logarithmic(TOKENS, [shape.size["T"] for shape in shapes], 2)
        y_axis = Linear("million token-heads a second", every[model, fixed])
        panels.append(charts.panel(f"{size}{dtype}, {where(place)}", x_axis, y_axis, marks))
    entries = [(name, styles.line(name), "line") for name in (*styles.schedules, *styles.peers) if name in used]
    entries += [("the planner's choice", "", "ring")] if "automatic" in used else []
    fixed = next(iter(groups))[3]
    sizes = ", ".join(f"{name} {value}" for name, value in fixed if one_size or name != "N")
    scale = "all panels have the same scale" if one_size else "panels of one N have the same scale"
    return figure(f"{sizes}. Higher is better; {scale}.", charts.legend(entries), panels), len(panels)


# ------------------------------------------------------------------------------------------------- speed-up, the grid


def baseline_of(measured, wanted):
    on_grid = {peer for (_, _, of_set, _), results in measured.peers.items() if of_set == "grid" for peer in results}
    return wanted or min(on_grid, default="staged")


def baseline_result(measured, place, shape, baseline):
    peer = peers_of(measured, place, shape).get(baseline)
    own = [result for name, result in measured.places[place][shape].items() if baseline in (name, name.split("/")[0])]
    return peer or min(own, key=lambda result: result.median, default=None)


def speed_up(measured, wanted):
    baseline = baseline_of(measured, wanted)
    curves = {}
    for (place, dtype, _, fixed), shapes in sequences(measured, "grid").items():
        for shape in shapes:
            base, schedules = baseline_result(measured, place, shape, baseline), measured.places[place][shape]
            best = table.best(schedules)
            if base:
                N, T, ratio = dict(fixed)["N"], shape.size["T"], base.median / schedules[best].median
                point = Point(T, ratio, f"N {N}, T {T}: {ratio:.2f} times as fast, with {best}")
                curves.setdefault((place, dtype), {}).setdefault(N, []).append(point)
    if not curves:
        return f"<p>The file has no several lengths of the published grid with {escape(baseline)}.</p>"
    every = [point for by_N in curves.values() for points in by_N.values() for point in points]
    y_axis = Linear(f"speed-up over {baseline}", [1, *(point.y for point in every)])
    x_axis = Logarithmic(TOKENS, [point.x for point in every], 2)
    states = sorted({N for by_N in curves.values() for N in by_N})
    style = {N: N_STYLES[index % len(N_STYLES)] + DASHES[index // len(N_STYLES) % len(DASHES)] for index, N in enumerate(states)}
    panels = []
    for (place, dtype), by_N in curves.items():
        marks = [Segment((x_axis.low, 1), (x_axis.high, 1))] + [Line(by_N[N], style[N]) for N in sorted(by_N)]
        panels.append(charts.panel(f"{dtype}, {where(place)}", x_axis, y_axis, marks))
    kind = " (the published schedule, its fastest policy)" if baseline == "staged" else ""
    caption = (f"B 4, H 8, P 64, G 1. How many times as fast as {escape(baseline)}{kind} the fastest schedule is. "
               "All panels have the same scale.")
    return figure(caption, charts.legend([(f"N {N}", style[N], "line") for N in states]), panels)


# ----------------------------------------------------------------------------------------------------------- roofline


def roofline(measured, styles):
    dots, used = {}, set()
    for place in in_order(measured.places):
        for shape, schedules in measured.places[place].items():
            for name, result in {**schedules, **peers_of(measured, place, shape)}.items():
                if (name == "automatic" and table.fastest(schedules)) or not table.work_of(result):
                    continue
                name = result.row["label"] if name == "automatic" else name
                flop, moved = table.work_of(result)
                used.add(name)
                rate = flop / result.median * 1e-3
                tip = f"{name}, {shape}, {place.backend}: {table.figures(rate)} GFLOP/s at {flop / moved:.3g} FLOP/byte"
                of_machine = dots.setdefault((place.threads, place.level), {})
                of_machine.setdefault((name, shape.dtype), []).append(Point(flop / moved, rate, tip))
    if not dots:
        return "<p>The file's results lack the counters flop and bytes.</p>"
    every = [point for of_machine in dots.values() for points in of_machine.values() for point in points]
    ridges = [peak / measured.copy[machine] for machine, peak in measured.sgemm.items() if machine in measured.copy]
    x_low = min([point.x for point in every] + [ridge / 2 for ridge in ridges])
    x_high = max([point.x for point in every] + [ridge * 2 for ridge in ridges])
    x_axis = Logarithmic("FLOP per byte of x, y, B, C and dt (log scale)", [x_low, x_high], 10)
    roofs = [*measured.sgemm.values(), *(copy * x_axis.low for copy in measured.copy.values())]
    rates_of_all = [*(point.y for point in every), *roofs]
    unit, scale = ("TFLOP/s", 1e-3) if max(rates_of_all) >= 2e4 else ("GFLOP/s", 1)
    y_axis = Logarithmic(f"{unit} (log scale)", [rate * scale for rate in rates_of_all], 10)
    panels = []
    dtypes = sorted({dtype for of_machine in dots.values() for _, dtype in of_machine}, reverse=True)
    for (threads, level), of_machine in dots.items():
        peak, copy = (roof.get((level, threads), 0) * scale for roof in (measured.sgemm, measured.copy))
        marks = []
        if copy:
            top = min(peak or y_axis.high, copy * x_axis.high)
            text = f"copy: {table.figures(copy / scale)} GB/s"
            marks.append(Segment((x_axis.low, copy * x_axis.low), (top / copy, top), text, "end"))
        if peak:
            begin = peak / copy if copy else x_axis.low
            marks.append(Segment((begin, peak), (x_axis.high, peak), f"{table.product(threads)}: {table.figures(peak)} {unit}"))
        for (name, dtype), points in of_machine.items():
            shape = "square" if dtype == dtypes[0] and len(dtypes) > 1 else "circle"
            scaled = [point._replace(y=point.y * scale) for point in points]
            marks.append(Dots(scaled, styles.colour(name) + " many", shape))
        title = ", ".join(filter(None, (results_file.threads_in_words(threads), level)))
        panels.append(charts.panel(title, x_axis, y_axis, marks, charts.WIDE))
    names = [name for name in (*styles.schedules, *styles.peers) if name in used]
    families = {name.split("/")[0] if name in styles.schedules else name: styles.colour(name) for name in names}
    entries = [(family, colour, "circle") for family, colour in families.items()]
    if len(dtypes) > 1:
        entries += [(f"square: {dtypes[0]}", "mark", "square"), (f"circle: {', '.join(dtypes[1:])}", "mark", "circle")]
    caption = ("Every case but the planner's choices, which are among them. FLOP: the four products of the chunked form, by one "
               "formula for all schedules; below 128 tokens it counts more than there is to do. The roofs: a matrix product (on a "
               "CPU sgemm in f32, which products of bf16 pairs may pass) and a copy from memory to memory, measured in the same "
               "run (of a GPU the fastest copy known, if that is more); what stays in a cache may pass the copy's.")
    return figure(caption, charts.legend(entries), panels, "wide")


# ------------------------------------------------------------------------------------------------------------- errors


def error_pictures(measured, styles):
    """The heading and a figure; nothing if no errors were measured."""
    dots, used = {}, set()
    for place in in_order(measured.places):
        for shape, schedules in measured.places[place].items():
            for name, result in {**schedules, **peers_of(measured, place, shape)}.items():
                error = result.row.get("error_y", 0)
                name = result.row["label"] if name == "automatic" else name
                if not error > 0:
                    continue
                used.add(name)
                tip = f"{name}, {table.SETS.get(place.set, place.set)}, {shape}: {error:.2g}"
                of_place = dots.setdefault((place.threads, place.level, shape.dtype), {})
                where_it_is = of_place.setdefault(name if name in styles.peers else name.split("/")[0], [])
                where_it_is.append(Point(shape.size["T"], error, tip))
    if not dots:
        return []
    every = [point for of_place in dots.values() for points in of_place.values() for point in points]
    x_axis = Logarithmic(TOKENS, [point.x for point in every], 2)
    y_axis = Logarithmic("relative error of y (log scale)", [point.y for point in every], 10)
    panels = []
    for (threads, level, dtype), of_place in dots.items():
        marks = [Dots(points, f"{styles.colour(name)} many") for name, points in of_place.items()]
        title = ", ".join(filter(None, (dtype, results_file.threads_in_words(threads), level)))
        panels.append(charts.panel(title, x_axis, y_axis, marks))
    families = list(dict.fromkeys(name if name in styles.peers else name.split("/")[0] for name in sorted(used)))
    caption = ("The distance of y from the recurrence, token by token in double, relative to its norm, on a sample of channels; every "
               "shape and policy. Lower is better.")
    return ["<h2>Errors</h2>", figure(caption, charts.legend([(name, styles.colour(name), "circle") for name in families]), panels)]


# ------------------------------------------------------------------------------------------------------------ kernels


def kernel_pictures(measured):
    """The heading and a figure; nothing if the file has no kernels' times."""
    if not measured.kernels:
        return []
    longest = {}
    for entry in measured.kernels:
        longest[entry["shape"]] = max(longest.get(entry["shape"], 0), *entry["us"].values())
    panels = []
    for entry in measured.kernels:
        rows = sorted(entry["us"].items(), key=lambda kernel: -kernel[1])
        rows = [(name.strip("_"), us, f"{us:.4g} us") for name, us in rows[:MOST_BARS]]
        panels.append(charts.bars(f"{entry['of']}, {entry['shape']}: {sum(entry['us'].values()):.4g} us", "microseconds of a call",
                                  rows, "fused" if entry["of"] == "tilemamba" else PEER_STYLES[0], longest[entry["shape"]]))
    caption = "The kernels of a call, as a profiler sees them, which adds to short ones. Bars of one shape have the same scale."
    return ["<h2>Time by kernel</h2>", figure(caption, "", panels, "wide")]


# ------------------------------------------------------------------------------------------------------------ planner


def losses(measured):
    panels = []
    machines = {}
    for place in in_order(measured.places):
        for shape, schedules in measured.places[place].items():
            plan = table.planner(schedules)
            if plan:
                of = f"{place.set} {short(shape)}" if place.set in ("slow", "invariant") else short(shape)
                machines.setdefault(place._replace(set=""), []).append((of, *plan, table.fastest(schedules)))
    for place, plans in machines.items():
        behind = sorted((plan for plan in plans if plan[2] > 1.0005), key=lambda plan: -plan[2])
        mean = (table.geometric_mean([plan[2] for plan in plans]) - 1) * 100
        title = f"{where(place)}: {mean:.1f} % in the mean of {len(plans)}"
        if behind:
            rows = [(of, (loss - 1) * 100, f"{(loss - 1) * 100:.1f} %") for of, _, loss, _ in behind[:MOST_BARS]]
            panels.append(charts.bars(title, "per cent slower than the fastest schedule", rows, "mark"))
        else:
            panels.append(f"<p>{escape(title)}: the fastest schedule everywhere.</p>")
    if not panels:
        return "<p>The planner's choices are not in the file.</p>"
    caption = (f"How much longer the planner's choice takes than the fastest schedule: the {MOST_BARS} shapes with the greatest "
               "loss. Where it chose the fastest one the loss is 0, whatever noise says.")
    return figure(caption, "", panels, "wide")


def short(shape):
    """A shape's name for a narrow place: without what is 1, or what the model says."""
    sizes = [f"{name} {value}" for name, value in shape.size.items()
             if (value != 1 or name in "TN") and (name in "BT" or not shape.model)]
    return f"{shape.dtype} {shape.model} {' '.join(sizes)}".replace("  ", " ")


# ------------------------------------------------------------------------------------------------------------- tables


def cell(value, text):
    return f'<td class="text">{escape(value)}</td>' if text else f"<td>{escape(value)}</td>"


def shape_table(measured, place, shapes):
    machine = place.level, place.threads
    errors = sorted({counter for schedules in shapes.values() for result in schedules.values() for counter in result.row
                     if counter.startswith(ERRORS) and isinstance(result.row[counter], float)})
    peers = sorted({peer for shape in shapes for peer in peers_of(measured, place, shape)})
    columns = ["shape", "fastest", "ms", "M token-heads/s", "GFLOP/s", "of sgemm", "floor, ms", "x floor", "planner", "its loss, %",
               *(f"{peer} : fastest" for peer in peers), *errors]
    rows = []
    for shape, schedules in shapes.items():
        best, plan = table.best(schedules), table.planner(schedules)
        result = schedules[best]
        least, found = table.floor(measured, machine, result), peers_of(measured, place, shape)
        row = [str(shape), best, f"{result.median * 1e-3:.4g}", table.figures(table.rate(result))]
        row += [table.figures(result.row[counter]) if counter in result.row else "" for counter in ("GFLOP/s", "of_sgemm")]
        row += [f"{least * 1e-3:.4g}", f"{result.median / least:.2f}"] if least else ["", ""]
        row += [plan[0], f"{(plan[1] - 1) * 100:.1f}"] if plan else ["", ""]
        row += [f"{found[peer].median / result.median:.2f}" if peer in found else "" for peer in peers]
        row += [f"{result.row[error]:.2g}" if error in result.row else "" for error in errors]
        rows.append(row)
    kept = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    text = ("shape", "fastest", "planner")
    head = "".join(f'<th class="{"text" if columns[index] in text else ""}">{escape(columns[index])}</th>' for index in kept)
    body = "".join("<tr>" + "".join(cell(row[index], columns[index] in text) for index in kept) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def tables(measured):
    parts = ["<p>Times are medians of repetitions. The floor is the larger of two times: the FLOP at the matrix product's rate and "
             "the bytes at the copy's. Of a peer: its time as a multiple of the fastest schedule's, above 1 where that is faster. "
             "A click on a column's head sorts.</p>"]
    for index, place in enumerate(in_order(measured.places)):
        shapes = measured.places[place]
        parts.append(f"<details{' open' if index == 0 else ''}><summary>{escape(table.SETS.get(place.set, place.set))}: "
                     f"{escape(where(place))} ({len(shapes)})</summary>{shape_table(measured, place, shapes)}</details>")
    return "".join(parts)


# ----------------------------------------------------------------------------------------------------------- the page


def facts(measured):
    rows = [(key, sorted({str(context[key]) for context in measured.contexts if key in context}))
            for key in ("cpu", "device", "driver", "compiler", "torch", "triton", "blas", "tilemamba", "commit", "date")]
    rows = [(key, ", ".join(values[:1] if key == "date" else values)) for key, values in rows if values]
    title_of_product = table.product(max((threads for _, threads in measured.sgemm), default=1))
    for title, unit, found in ((title_of_product, "GFLOP/s", measured.sgemm), ("copy", "GB/s", measured.copy)):
        said = [f"{table.figures(rate)} {unit} ({', '.join(filter(None, (results_file.threads_in_words(threads), level)))})"
                for (level, threads), rate in sorted(found.items())]
        rows += [(title, "; ".join(said))] if said else []
    return '<dl class="facts">' + "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in rows) + "</dl>"


def section(measured, title, baseline):
    styles = Styles(measured)
    by_tokens, _ = rates(measured, styles, "tokens")
    on_grid, count = rates(measured, styles, "grid")
    gains = "".join(f"<li>{escape(line).replace('`', '')}</li>" for line in readme_section.gain_lines(measured))
    best = where(table.Place(*readme_section.best_machine(readme_section.by_machine(measured)), ""))
    short_of = f"<p>Of {escape(best)}, geometric means and ranges over all shapes:</p><ul>{gains}</ul>"
    lines = [f"<h1>{escape(title)}</h1>", facts(measured), "<h2>In short</h2>", short_of if gains else "<p>Nothing to compare.</p>",
             "<h2>Rates against the length of the sequence</h2>", by_tokens]
    if on_grid:
        lines.append(f"<details{'' if by_tokens else ' open'}><summary>On the published grid ({count} panels)</summary>"
                     f"{on_grid}</details>")
    if not by_tokens and not on_grid:
        lines.append("<p>The file has no several lengths of the same shape.</p>")
    return "\n".join([*lines, "<h2>Speed-up on the published grid</h2>", speed_up(measured, baseline),
                      "<h2>Roofline</h2>", roofline(measured, styles), *error_pictures(measured, styles),
                      *kernel_pictures(measured), "<h2>The planner's loss</h2>", losses(measured),
                      "<h2>Every shape</h2>", tables(measured)])


def page(sections):
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>tilemamba benchmarks</title>\n'
            f'<meta name="viewport" content="width=device-width">\n<style>\n{style}</style></head>\n<body>\n'
            f'{"".join(sections)}\n<script>\n{script}</script>\n</body></html>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT.html")
    parser.add_argument("--baseline", metavar="NAME")
    arguments = parser.parse_args()
    try:
        sections = []
        for path in arguments.results:
            measured = table.load(path)
            if not measured.places:
                raise results_file.BadFile(f"{path}: holds no results of a backend")
            context = measured.contexts[0]
            title = f"tilemamba on {context.get('device', context.get('cpu', 'a CPU'))}"
            sections.append(section(measured, title, arguments.baseline))
        arguments.output.write_text(page(sections), encoding="utf-8")
    except (OSError, results_file.BadFile) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
