#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of others on the shapes of a result file of a GPU, on the same inputs, as a run of results_file.py's format.

peers.py RESULTS.json -o PEERS.json [--repetitions 5] [--cutile]

mamba_ssm: its mamba_chunk_scan_combined, if mamba_ssm.ops.triton can be imported. Its kernels are not autotuned here, which takes
minutes and varies: CONFIGS, below, are the ones found once on an H200, each with the faster of the two chunk sizes that models use.
Shapes that are not there are autotuned.
cutile: TileGym's three kernels, if the packages tilegym and cuda-tile[tileiras] are there, on the shapes of the published grid. Each
shape and T is searched anew, which takes minutes (one did not end in 165 s on an H200): only with --cutile.
Times are of replayed CUDA graphs, on copies of the tensors that take turns, as in
tilemamba_bench. Each answer is compared with the recurrence in double on the channels that tilemamba_bench samples.

Exit code: 0; 2 for a file that is none; 77 if there is no PyTorch.

Also what the GPU does at best, a copy and a product of bf16 matrices; and for some shapes the time of each kernel of mamba_ssm's
and, if the Python package is there, of tilemamba's.
"""
import argparse
import datetime
import importlib
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import results_file
import table

try:
    import numpy as np
    import torch
    from torch.nn.functional import pad
except ImportError as missing:
    print(f"peers.py: without others and without a floor: {missing}", file=sys.stderr)
    sys.exit(77)

MORE_THAN_CACHES, MOST_COPIES = 512e6, 16  # as in bench/main.cpp
KERNELS = {"bmm": ("ssd_bmm", "_bmm_chunk_fwd_kernel"), "cumsum": ("ssd_chunk_state", "_chunk_cumsum_fwd_kernel"),
           "state": ("ssd_chunk_state", "_chunk_state_fwd_kernel"), "passing": ("ssd_state_passing", "_state_passing_fwd_kernel"),
           "scan": ("ssd_chunk_scan", "_chunk_scan_fwd_kernel"), "varlen": ("ssd_chunk_state", "_chunk_state_varlen_kernel")}
# {(P, N): (chunk, {kernel: its config: block sizes (M, N, K), (H) or (size), warps, stages})}, found by Triton's autotuner.
CONFIGS = {
    (64, 64): (128, {"bmm": (128, 128, 32, 4, 4), "cumsum": (8, 4, 3), "state": (64, 64, 32, 2, 4), "passing": (128, 4, 3),
                     "scan": (32, 64, 32, 2, 5)}),
    (64, 128): (256, {"bmm": (128, 128, 32, 4, 4), "cumsum": (2, 4, 3), "state": (64, 128, 32, 4, 4), "passing": (256, 4, 3),
                      "scan": (32, 64, 32, 2, 5)}),
    (64, 256): (256, {"bmm": (128, 256, 64, 8, 3), "cumsum": (4, 4, 3), "state": (64, 128, 32, 4, 4), "passing": (256, 4, 3),
                      "scan": (32, 64, 32, 2, 5)}),
    (64, 512): (256, {"bmm": (128, 256, 64, 8, 3), "cumsum": (2, 4, 3), "state": (64, 128, 32, 4, 4), "passing": (512, 4, 3),
                      "scan": (64, 64, 32, 2, 4)}),
    (80, 128): (128, {"bmm": (128, 128, 32, 4, 4), "cumsum": (16, 4, 3), "state": (128, 128, 32, 4, 4), "passing": (1024, 4, 3),
                      "scan": (64, 128, 32, 4, 4)}),
}
PROFILED = ("B 4 T 16384 H 8 P 64 G 1 N 128", "B 4 T 65536 H 8 P 64 G 1 N 512", "B 1 T 8192 H 80 P 64 G 1 N 128")


# ------------------------------------------------------------------------------------------------------------- inputs


def uniform_of(index):
    """As core/workload.cpp has it."""
    with np.errstate(over="ignore"):
        v = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((v ^ (v >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def drawn(number, shape, dtype, draw):
    """The tensor of this number: 65537 values, and repeats of them."""
    count = math.prod(shape)
    i = np.arange(min(count, 65537), dtype=np.uint64)
    index = np.uint64(number << 32) + np.uint64(2) * i
    uniform = uniform_of(index)
    normal = np.sqrt(-2 * np.log(uniform)) * np.cos(2 * np.pi * uniform_of(index + np.uint64(1)))
    values = torch.from_numpy(draw(normal, uniform, i).astype(np.float32)).to("cuda", dtype)
    return values.repeat(-(-count // len(values)))[:count].view(shape)


def silu(normal, uniform, i):
    return normal / (1 + np.exp(-normal))


def as_is(normal, uniform, i):
    return normal


def inputs_of(shape, slow):
    """{name: tensor}"""
    B, T, H, P, G, N = (shape.size[name] for name in "BTHPGN")
    S = shape.size.get("S", 0)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[shape.dtype]
    step = (lambda n, u, i: 0.09 * u) if slow else (lambda n, u, i: np.log1p(np.exp(n)))
    rate = (lambda n, u, i: np.where(i % np.uint64(2) == 0, -1e-3, -0.2)) if slow else (lambda n, u, i: -1 - 15 * u)
    call = {"x": drawn(0, (B, T, H, P), dtype, silu), "dt": drawn(1, (B, T, H), dtype, step), "A": drawn(2, (H,), torch.float32, rate),
            "B": drawn(3, (B, T, G, N), dtype, silu), "C": drawn(4, (B, T, G, N), dtype, silu),
            "D": drawn(5, (H,), torch.float32, as_is)}
    if not S:
        call["initial_states"] = drawn(6, (B, H, P, N), torch.float32, as_is)
    else:
        starts = [int((2.0 ** (8 * s / S) - 1) / 255 * T) for s in range(S)] + [T]
        call["cu_seqlens"] = torch.tensor(starts, dtype=torch.int32, device="cuda")
        call["seq_idx"] = torch.repeat_interleave(torch.arange(S, device="cuda"), call["cu_seqlens"].diff())[None].to(torch.int32)
    return call


# ---------------------------------------------------------------------------------------------------------- is it right


def channel(call, batch, begin, end, head, p, length=256):
    """y and the last state of a channel in double, by chunks."""
    group = head // (call["x"].shape[2] // call["B"].shape[2])
    tokens = end - begin
    chunks = max(-(-tokens // length), 1)

    def cut(tensor):
        tensor = tensor[batch, begin:end].double()
        tensor = pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, chunks * length - tokens))
        return tensor.reshape(chunks, length, *tensor.shape[1:])

    delta, x = cut(call["dt"][:, :, head]), cut(call["x"][:, :, head, p])
    B, C = cut(call["B"][:, :, group]), cut(call["C"][:, :, group])
    cum = (delta * call["A"][head].double()).cumsum(1)
    decay = torch.tril(torch.exp((cum[:, :, None] - cum[:, None, :]).tril()))
    weighted = delta * x
    y = ((C @ B.mT) * decay @ weighted[..., None])[..., 0] + call["D"][head].double() * x
    sums = ((cum[:, -1:] - cum).exp() * weighted)[:, None] @ B
    initial = call.get("initial_states")
    state = initial[batch, head, p].double() if initial is not None else torch.zeros_like(B[0, 0])
    last, entering = cum[:, -1].exp(), []
    for k in range(chunks):
        entering.append(state)
        state = last[k] * state + sums[k, 0]
    y += cum.exp() * (C @ torch.stack(entering)[..., None])[..., 0]
    return y.reshape(-1)[:tokens], state


def errors_of(call, y, states):
    """{counter: relative error} on the channels that core/sample.cpp takes."""
    B, T, H, P = call["x"].shape
    N = call["B"].shape[3]
    starts = call["cu_seqlens"].tolist() if "cu_seqlens" in call else None
    every = (len(starts) - 1 if starts else B) * H * P
    count = min(every, int(min(max(4e8 / max(T * N, 1), 2), 32)))
    sums = torch.zeros(4, dtype=torch.float64, device="cuda")
    for i in range(count):
        which = every // 2 if count == 1 else (every - 1) // (count - 1) * i
        sequence, head, p = which // P // H, which // P % H, which % P
        batch, begin, end = (0, starts[sequence], starts[sequence + 1]) if starts else (sequence, 0, T)
        right_y, right_state = channel(call, batch, begin, end, head, p)
        sums += torch.stack([(y[batch, begin:end, head, p].double() - right_y).square().sum(), right_y.square().sum(),
                             (states[sequence, head, p].double() - right_state).square().sum(), right_state.square().sum()])
    return {"error_y": math.sqrt(sums[0] / sums[1]), "error_states": math.sqrt(sums[2] / sums[3])}


# --------------------------------------------------------------------------------------------------------------- times


def microseconds(calls, repetitions):
    """[microseconds of a call, the mean over replays of a graph] of each repetition. calls: one for each copy of the tensors."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()

        def graph_of(count):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for i in range(count):
                    calls[i % len(calls)]()
            return graph

        def replay(graph):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e3

        one = graph_of(1)
        replay(one)
        count = int(min(max(1e3 / replay(one), 1), 64))
        graph = graph_of(count)
        replay(graph)
        times = []
        for _ in range(repetitions):
            replays, total = 0, 0.0
            while total < 10e3:
                total += replay(graph)
                replays += 1
            times.append(total / replays / count)
    return times


def copies_of(call):
    size = sum(tensor.numel() * tensor.element_size() for tensor in call.values())
    return [call] + [{name: tensor.clone() for name, tensor in call.items()}
                     for _ in range(min(MOST_COPIES, math.ceil(MORE_THAN_CACHES / size)) - 1)]


def kernel_times(call, repeat=5):
    """{kernel: microseconds of a call}"""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeat):
            call()
        torch.cuda.synchronize()
    found = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            words = re.sub(r"<.*|\(.*", "", event.name.removeprefix("void ")).split("::")
            found[words[-1]] = found.get(words[-1], 0) + event.time_range.elapsed_us() / repeat
    return found


# -------------------------------------------------------------------------------------------------------------- peers


class MambaSsm:
    name = "mamba_ssm"

    def __init__(self):
        self.function = importlib.import_module("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined
        self.kernels = {name: getattr(importlib.import_module(f"mamba_ssm.ops.triton.{module}"), kernel)
                        for name, (module, kernel) in KERNELS.items()}
        self.autotuned = {name: kernel.configs for name, kernel in self.kernels.items()}

    def prepare(self, shape):
        """@return the chunk size"""
        import triton

        names = {"bmm": "MNK", "state": "MNK", "varlen": "MNK", "scan": "MNK", "cumsum": "H", "passing": ""}
        chunk, configs = CONFIGS.get((shape.size["P"], shape.size["N"]), (256, {}))
        configs = {**configs, "varlen": configs["state"]} if configs else {}
        for name, kernel in self.kernels.items():
            kernel.configs = self.autotuned[name]
            if name in configs:
                *blocks, warps, stages = configs[name]
                keys = [f"BLOCK_SIZE_{letter}" for letter in names[name]] or ["BLOCK_SIZE"]
                kernel.configs = [triton.Config(dict(zip(keys, blocks)), num_warps=warps, num_stages=stages)]
        return chunk

    def takes(self, set_name, shape):
        return set_name != "invariant"  # it has no such option

    def run(self, call, chunk):
        """y, the last states"""
        options = {name: call[name] for name in ("D", "initial_states", "cu_seqlens", "seq_idx") if name in call}
        packed = "cu_seqlens" in call
        y, states = self.function(*(call[name] for name in ("x", "dt", "A", "B", "C")), chunk, **options,
                                  return_final_states=not packed, return_varlen_states=packed)
        return y, states


class CuTile:
    name = "cutile"

    def __init__(self):
        self.function = importlib.import_module("tilegym.ops.cutile.mamba2").mamba2_chunk_forward

    def takes(self, set_name, shape):
        return set_name == "grid" and shape.dtype == "bf16"

    def prepare(self, shape):
        """@return the chunk size"""
        return 64  # its own default

    def run(self, call, chunk):
        """y, the last states"""
        return self.function(*(call[name] for name in ("x", "A", "B", "C", "D", "dt", "initial_states")), chunk_size=chunk)


def compile_at_once(shapes):
    """Triton compiles on one core: a process for each kind of kernels fills its cache."""
    kinds = {(shape.dtype, shape.size["P"], shape.size["N"], shape.size["G"], "S" in shape.size): shape for shape in shapes}
    kinds = {kind: shape._replace(sizes=re.sub(r" T \d+", " T 512", shape.sizes)) for kind, shape in kinds.items()}
    processes = [subprocess.Popen([sys.executable, __file__, "--compile", json.dumps(shape)]) for shape in kinds.values()]
    for process in processes:
        process.wait()


def benchmark(name, times, **more):
    return [{"name": f"{name}/manual_time", "run_name": f"{name}/manual_time", "run_type": "iteration", "repetitions": len(times),
             "repetition_index": i, "threads": 1, "iterations": 1, "real_time": time, "cpu_time": time, "time_unit": "us",
             **{key: value(time) if callable(value) else value for key, value in more.items()}} for i, time in enumerate(times)]


def roofs(repetitions):
    size = 1 << 30
    source, target = (torch.zeros(size // 4, dtype=torch.int32, device="cuda") for _ in range(2))
    # By a kernel: the copy engine, which `target.copy_` would take, is slower.
    rows = benchmark("memory/copy", microseconds([lambda: torch.add(source, 1, out=target)], repetitions),
                     **{"GB/s": lambda us: 2e-3 * size / us})
    n = 8192
    a, b = (torch.randn(n, n, device="cuda").bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    return rows + benchmark("matmul/bf16", microseconds([lambda: torch.mm(a, b, out=c)], repetitions),
                            **{"GFLOP/s": lambda us: 2e-3 * n**3 / us})


def profiles(of, shape, run):
    return [{"shape": f"{shape.dtype} {shape.sizes}", "of": of, "us": kernel_times(run)}]


def profiles_of_ours(shapes):
    try:
        import tilemamba
    except ImportError:
        return []
    found = []
    for set_name, shape in shapes:
        if shape.sizes in PROFILED and set_name not in ("slow", "invariant"):
            call = inputs_of(shape, False)
            found += profiles("tilemamba", shape, lambda call=call: tilemamba.scan(**call, final_states=True))
    return found


def measure(path, repetitions, cutile):
    measured = table.load(path)
    shapes = list(dict.fromkeys((place.set, shape) for place, shapes in measured.places.items() for shape in shapes if not place.threads))
    rows, kernels = roofs(repetitions), profiles_of_ours(shapes)
    peers = []
    for kind in [MambaSsm] + [CuTile] * cutile:
        try:
            peers.append(kind())
        except ImportError as error:
            print(f"peers.py: {kind.name} is not there: {error}", file=sys.stderr)
    if any(isinstance(peer, MambaSsm) for peer in peers):
        compile_at_once([shape for _, shape in shapes])
    for peer, (set_name, shape) in itertools.product(peers, shapes):
        if not peer.takes(set_name, shape):
            continue
        call = inputs_of(shape, set_name == "slow")
        chunk = peer.prepare(shape)
        with torch.no_grad():
            errors = errors_of(call, *peer.run(call, chunk))
            if not max(errors.values()) < 2e-2:
                print(f"peers.py: {peer.name} is wrong on {set_name} {shape}: {errors}", file=sys.stderr)
            times = microseconds([lambda copy=copy: peer.run(copy, chunk) for copy in copies_of(call)], repetitions)
            if shape.sizes in PROFILED and set_name != "slow":
                kernels += profiles(peer.name, shape, lambda: peer.run(call, chunk))
        parts = [set_name, peer.name, "peer", shape.dtype, shape.model, shape.sizes.replace(" ", ":", 1)]
        name = "/".join(filter(None, parts[:5])) + "/" + "/".join(re.findall(r"\w \d+", shape.sizes)).replace(" ", ":")
        result = next(iter(next(by_shape[shape] for place, by_shape in measured.places.items()
                                if place.set == set_name and shape in by_shape).values()))
        B, T, H = (shape.size[size] for size in "BTH")
        work = {key: result.row[key] for key in ("flop", "bytes")}
        rows += benchmark(name, times, label=f"chunk {chunk}", **work, **errors, **{
            "token_heads/s": lambda us: B * T * H / us * 1e6, "GFLOP/s": lambda us: result.row["flop"] / us * 1e-3})
    return rows, kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cutile", action="store_true", help="also TileGym's kernels")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile:
        shape = table.Shape(*json.loads(arguments.compile))
        peer = MambaSsm()
        with torch.no_grad():
            peer.run(inputs_of(shape, False), peer.prepare(shape))
        return 0
    if not arguments.results or not arguments.output:
        parser.error("RESULTS.json and -o PEERS.json are needed")
    try:
        rows, kernels = measure(arguments.results, arguments.repetitions, arguments.cutile)
    except results_file.BadFile as error:
        print(f"peers.py: {error}", file=sys.stderr)
        return 2
    versions = {}
    for module in ("torch", "triton"):
        versions[module] = getattr(sys.modules.get(module), "__version__", "")
    configs = {f"P {P} N {N}": {"chunk": chunk, **found} for (P, N), (chunk, found) in CONFIGS.items()}
    context = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "device": torch.cuda.get_device_name(), **versions, "configs": configs}
    arguments.output.write_text(json.dumps({"context": context, "benchmarks": rows, "kernels": kernels}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
