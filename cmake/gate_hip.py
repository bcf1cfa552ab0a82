#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must hold of compiled AMD device code: gate_hip.py MODULE LLVM-OBJDUMP LLVM-READELF

No kernel touches scratch memory or spills a vector register. Every kernel that multiplies has matrix instructions of its own
kind (v_mfma on gfx9, v_wmma on gfx11) and reads local memory. Prints what each kernel takes.
Exit 0: fine, 1: not, 77: could not be checked (and says why)."""

import collections
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
STEPS = ("tabulate", "sum_segments", "fused", "cumsum", "pass_state", "compute_out")  # launches.hpp
MATRIX = {"gfx9": "v_mfma", "gfx11": "v_wmma"}


def code_objects(data):
    """(architecture, bytes) for every code object in a host object."""
    at = data.find(MAGIC)
    while at >= 0:
        (count,) = struct.unpack_from("<Q", data, at + len(MAGIC))
        entry = at + len(MAGIC) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, entry)
            name = data[entry + 24 : entry + 24 + length].decode()
            entry += 24 + length
            if size and "amdgcn" in name:
                yield re.search(r"gfx[0-9a-f]+", name).group(), data[at + offset : at + offset + size]
        at = data.find(MAGIC, at + 1)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(module, objdump, readelf):
    for tool in (objdump, readelf):
        if not pathlib.Path(tool).exists():
            print(f"\n*** SKIPPED: {tool or 'llvm-objdump'} is not there, so the device code was not checked ***\n", file=sys.stderr)
            return 77
    faults, seen = [], collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for architecture, code in code_objects(pathlib.Path(module).read_bytes()):
            file = str(pathlib.Path(folder) / "code")
            pathlib.Path(file).write_bytes(code)
            facts, kernel = {}, None
            for line in run(readelf, "--notes", file).splitlines():
                if line.startswith("  - ."):  # the first key of a kernel; those of its arguments are further in
                    kernel = {}
                if match := re.match(r"\s*(?:- )?\.(\w+):\s+(\S+)", line):
                    key, value = match.groups()
                    if kernel is not None:
                        kernel[key] = value
                        if key == "symbol":
                            facts[value.removesuffix(".kd")] = kernel
            if not facts:
                faults.append(f"{architecture}: a code object without kernels")
            instructions, name = collections.defaultdict(collections.Counter), None
            for line in run(objdump, "-d", "--no-show-raw-insn", file).splitlines():
                if match := re.match(r"[0-9a-f]+ <(\w+)>:", line):
                    name = match.group(1)
                elif match := re.match(r"\s+([a-z]\w+)", line):
                    instructions[name][match.group(1)] += 1
            for symbol, its in facts.items():
                step = re.search(r"4StepE(\d)E", symbol)
                what = STEPS[int(step.group(1))] if step else "tabulate" if "tabulate" in symbol else symbol
                tiling = "x".join(re.findall(r"Li(\d+)E", symbol))
                used = instructions[symbol]
                count = lambda start: sum(n for op, n in used.items() if op.startswith(start))
                matrix = next(word for start, word in MATRIX.items() if architecture.startswith(start))
                scratch = sum(n for op, n in used.items() if re.match(r"(scratch|buffer)_(load|store)", op))
                print(f"{architecture} {what} {tiling}: {count(matrix)} {matrix}, {its['vgpr_count']} vector registers, "
                      f"{its.get('vgpr_spill_count', '?')} spilled, {scratch} scratch, {count('ds_')} of local memory, {sum(used.values())} in all")
                seen[architecture] += 1
                if scratch or its.get("vgpr_spill_count") != "0":
                    faults.append(f"{architecture} {symbol}: spills")
                if what not in ("tabulate", "cumsum") and not (count(matrix) and count("ds_")):
                    faults.append(f"{architecture} {symbol}: no {matrix}, or no local memory")
    if not seen:
        faults.append(f"{module} holds no device code")
    for fault in faults:
        print("gate:", fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
