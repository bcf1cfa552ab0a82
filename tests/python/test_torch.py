# SPDX-License-Identifier: Apache-2.0
"""PyTorch: the direct call, the operator, the drop-in for mamba_ssm, models of transformers. On the CPU, and on a GPU where there is one."""

import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import tilemamba
import tilemamba.mamba_ssm
import tilemamba.torch

INF = float("inf")


@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return "cuda"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    return "cpu" if request.param == "cpu" else request.getfixturevalue("gpu")


def problem(device, tokens=70, batch=2, heads=4, head_dim=32, groups=2, state=64, dtype=torch.float32, seed=0):
    """x, dt, A, B, C; and what else a call may have, by name."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    tensors = [
        draw(batch, tokens, heads, head_dim, dtype=dtype),
        draw(batch, tokens, heads) - 2,
        -torch.exp(draw(heads)),
        draw(batch, tokens, groups, state, dtype=dtype),
        draw(batch, tokens, groups, state, dtype=dtype),
    ]
    more = {
        "D": draw(heads),
        "z": draw(batch, tokens, heads, head_dim, dtype=dtype),
        "dt_bias": draw(heads),
        "initial_states": draw(batch, heads, head_dim, state),
        "dt_softplus": True,
    }
    return tensors, more


def recurrence(
    x, dt, A, B, C, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, dt_softplus=False, dt_limit=(0.0, INF)
):
    """Token by token in double: y and the state after each token."""
    x, dt, A, B, C, D, z, dt_bias, initial_states = (
        None if t is None else t.double() for t in (x, dt, A, B, C, D, z, dt_bias, initial_states)
    )
    delta = dt if dt_bias is None else dt + dt_bias
    delta = (torch.nn.functional.softplus(delta) if dt_softplus else delta).clamp(*dt_limit)
    B, C = (t.repeat_interleave(x.shape[2] // t.shape[2], 2) for t in (B, C))
    h = x.new_zeros(x.shape[0], *x.shape[2:], B.shape[3]) if initial_states is None else initial_states
    y, states = torch.empty_like(x), []
    for t in range(x.shape[1]):
        if seq_idx is not None and t > 0:
            h = torch.where((seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None], h, 0.0)
        h = torch.exp(delta[:, t] * A)[..., None, None] * h + torch.einsum("bh,bhp,bhn->bhpn", delta[:, t], x[:, t], B[:, t])
        y[:, t] = torch.einsum("bhpn,bhn->bhp", h, C[:, t])
        states.append(h)
    if D is not None:
        y = y + (D if D.dim() == 2 else D[:, None]) * x
    return y if z is None else y * torch.nn.functional.silu(z), states


def assert_near(answer, right, dtype):
    """fp32 within the 2e-6 of stored cases; 16-bit types within 1.5 times what rounding operands and output costs."""
    bar = {torch.float32: 2e-6, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}[dtype]
    assert torch.linalg.norm(answer.double() - right) <= bar * torch.linalg.norm(right)


def test_direct_call_is_right(device):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensors, more = problem(device, dtype=dtype)
        y, states, _ = tilemamba.scan(*tensors, **more, final_states=True)
        assert y.device == tensors[0].device and y.dtype == dtype and states.dtype == torch.float32
        right, right_states = recurrence(*tensors, **more)
        assert_near(y, right, dtype)
        assert_near(states, right_states[-1], dtype)


def test_direct_call_takes_views_and_outputs(device):
    tensors, more = problem(device)
    wide = torch.cat([t.flatten(2) for t in (tensors[0], tensors[3], tensors[4])], -1)
    x, B, C = wide.split([128, 128, 128], -1)
    y = torch.empty(2, 70, 4, 32, device=device)
    result = tilemamba.scan(x.unflatten(2, (4, 32)), *tensors[1:3], B.unflatten(2, (2, 64)), C.unflatten(2, (2, 64)), **more, y=y)
    assert result.y is y and torch.equal(y, tilemamba.scan(*tensors, **more).y)


def test_direct_call_refuses_what_it_would_lose(device):
    tensors, _ = problem(device)
    tensors[0].requires_grad_()
    with pytest.raises(ValueError, match="requires a gradient, and there is no backward"):
        tilemamba.scan(*tensors)
    with pytest.raises(TypeError, match="x has dtype torch.float64; it must be float32"):
        tilemamba.scan(tensors[0].detach().double(), *tensors[1:])
    with pytest.raises(TypeError, match="x is on meta; it must be on the CPU or on a GPU"):
        tilemamba.scan(*(t.detach().to("meta") for t in tensors))
    with torch.no_grad():
        tilemamba.scan(*tensors)


def test_tensors_on_two_devices_are_refused(gpu):
    tensors, _ = problem(gpu)
    with pytest.raises(ValueError, match="dt is on cpu but x is on cuda"):
        tilemamba.scan(tensors[0], tensors[1].cpu(), *tensors[2:])


def test_operator_passes_pytorchs_own_checks(device):
    tensors, more = problem(device)
    for x in (tensors[0], tensors[0].clone().requires_grad_()):
        arguments = (x, *tensors[1:], more["D"], more["z"], more["dt_bias"], more["initial_states"], None, None)
        torch.library.opcheck(
            torch.ops.tilemamba.scan.default,
            (*arguments, True, 0.0, INF, 64, True, torch.bfloat16),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )


def test_backward_says_that_it_does_not_exist(device):
    tensors, more = problem(device)
    tensors[0].requires_grad_()
    y = tilemamba.mamba_ssm.mamba_chunk_scan_combined(*tensors, 64, **more)
    with pytest.raises(NotImplementedError, match="the backward of tilemamba's scan does not exist yet"):
        y.sum().backward()


def test_compiled_for_any_number_of_tokens_is_one_graph(device):
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    def model(x, dt, A, B, C, D, z):
        y, states = tilemamba.mamba_ssm.mamba_chunk_scan_combined(
            x * 2, dt, A, B, C, 64, D=D, z=z, dt_softplus=True, return_final_states=True
        )
        return y + 1, states.sum()

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=count, fullgraph=True, dynamic=True)
    for tokens in (65, 70, 7, 300):  # the first equal to no other size, or dynamo takes them for one
        tensors, more = problem(device, tokens=tokens)
        answers = compiled(*tensors, more["D"], more["z"])
        for answer, right in zip(answers, model(*tensors, more["D"], more["z"])):
            assert torch.equal(answer, right)
    assert len(graphs) == 1


def test_plans_that_need_different_kernels_do_not_meet(gpu):
    """A plan made later, for a call that needs less, takes nothing from one before."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensors, more = problem(gpu, dtype=dtype)
        less = {name: more[name] for name in more if name != "z"}
        before = [tilemamba.scan(*tensors, **options).y for options in (more, less)]
        after = [tilemamba.scan(*tensors, **options).y for options in (more, less)]
        assert all(torch.equal(a, b) for a, b in zip(before, after))


def test_cuda_graph_captures_the_first_call(gpu):
    tensors, more = problem(gpu, tokens=77)
    inputs = [t.clone() for t in tensors]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nothing has run with these sizes before
        y, states = tilemamba.torch.scan(*inputs, **more, final_states=True)
    inputs[0].copy_(tensors[0] * 2)
    graph.replay()
    right = tilemamba.torch.scan(tensors[0] * 2, *tensors[1:], **more, final_states=True)
    assert torch.equal(y, right[0]) and torch.equal(states, right[1])


def test_current_stream_is_used(gpu):
    tensors, more = problem(gpu, tokens=4096)
    streams = [torch.cuda.Stream() for _ in range(2)]
    right = [tilemamba.scan(tensors[0] * (i + 1), *tensors[1:], **more).y for i in range(2)]
    torch.cuda.synchronize()
    for _ in range(10):
        answers = []
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000_000)
                # On any other stream the call would read the factor before the sleep is over.
                answers.append(tilemamba.scan(tensors[0] * (i + 1), *tensors[1:], **more).y)
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(answers, right))


# -------------------------------------------------------------------------------------------------------------- mamba_ssm


def test_signature_is_mamba_ssms(device):
    parameters = inspect.signature(tilemamba.mamba_ssm.mamba_chunk_scan_combined).parameters
    assert [(p.name, p.default) for p in parameters.values() if p.default is not p.empty] == [
        ("D", None), ("z", None), ("dt_bias", None), ("initial_states", None), ("seq_idx", None), ("cu_seqlens", None),
        ("dt_softplus", False), ("dt_limit", (0.0, INF)), ("return_final_states", False), ("return_varlen_states", False),
        ("state_dtype", None),
    ]  # fmt: skip
    assert list(parameters)[:6] == ["x", "dt", "A", "B", "C", "chunk_size"]


OPTIONS = {
    "nothing": lambda t, m: {},
    "D": lambda t, m: {"D": m["D"]},
    "D per channel": lambda t, m: {"D": m["D"][:, None] * torch.linspace(-1, 1, 32, device=m["D"].device)},
    "z": lambda t, m: {"z": m["z"]},
    "dt_bias": lambda t, m: {"dt_bias": m["dt_bias"], "dt_softplus": True},
    "initial_states": lambda t, m: {"initial_states": m["initial_states"]},
    "seq_idx": lambda t, m: {"seq_idx": (torch.arange(70, device=t[0].device) // 33).expand(2, 70)},
    "dt_softplus": lambda t, m: {"dt_softplus": True},
    "dt_limit": lambda t, m: {"dt_softplus": True, "dt_limit": (0.01, 0.1)},
    "all": lambda t, m: {**m, "dt_limit": (0.01, 0.5), "seq_idx": (torch.arange(70, device=t[0].device) // 33).expand(2, 70)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_drop_in_option(device, name):
    tensors, more = problem(device)
    if not OPTIONS[name](tensors, more).get("dt_softplus"):
        tensors[1] = torch.nn.functional.softplus(tensors[1])
    options = OPTIONS[name](tensors, more)
    y, states = tilemamba.mamba_ssm.mamba_chunk_scan_combined(*tensors, 64, **options, return_final_states=True)
    assert torch.equal(y, tilemamba.mamba_ssm.mamba_chunk_scan_combined(*tensors, 64, **options))
    right, right_states = recurrence(*tensors, **options)
    assert y.dtype == tensors[0].dtype and states.dtype == torch.float32
    assert_near(y, right, torch.float32)
    assert_near(states, right_states[-1], torch.float32)


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16])
def test_drop_in_varlen_states(device, initial, state_dtype):
    tensors, more = problem(device, batch=1)
    if not initial:
        more.pop("initial_states")
    cu_seqlens = torch.tensor([0, 33, 33, 70], device=device)
    call = tilemamba.mamba_ssm.mamba_chunk_scan_combined
    y, final_states, varlen_states = call(
        *tensors, 64, **more, cu_seqlens=cu_seqlens, return_final_states=True, return_varlen_states=True, state_dtype=state_dtype
    )
    # They cut nothing: y and the final states are those of one sequence.
    assert torch.equal(y, call(*tensors, 64, **more))
    assert_near(final_states, recurrence(*tensors, **more)[1][-1], torch.float32)
    assert varlen_states.dtype == (state_dtype or torch.float32) and varlen_states.shape == (3, 4, 32, 64)
    for s, (begin, end) in enumerate(((0, 33), (33, 33), (33, 70))):
        alone = {**more, "z": more["z"][:, begin:end]}
        if s > 0:
            alone.pop("initial_states", None)
        states = recurrence(*(t if t.dim() == 1 else t[:, begin:end] for t in tensors), **alone)[1]
        right = states[-1][0] if states else torch.zeros_like(varlen_states[s]).double()
        assert_near(varlen_states[s], right, state_dtype or torch.float32)
    assert len(call(*tensors, 64, **more, cu_seqlens=cu_seqlens, return_varlen_states=True)) == 2
    assert torch.equal(call(*tensors, 64, **more, cu_seqlens=cu_seqlens), y)
    with pytest.raises(ValueError, match="cu_seqlens was not passed"):
        call(*tensors, 64, return_varlen_states=True)


def test_drop_in_takes_what_mamba_ssm_takes(device):
    """Tensors that tilemamba.scan refuses: strided ones, others' types."""
    tensors, more = problem(device)
    call = tilemamba.mamba_ssm.mamba_chunk_scan_combined
    right = call(*tensors, 64, **more)
    strided = [t.transpose(-1, 1).contiguous().transpose(-1, 1) if t.dim() > 1 else t for t in tensors]
    assert strided[0].stride(-1) != 1 and torch.equal(call(*strided, 64, **more), right)
    narrow = {**more, "D": more["D"].bfloat16(), "dt_bias": more["dt_bias"].half()}
    wide = {**more, "D": narrow["D"].float(), "dt_bias": narrow["dt_bias"].float()}
    assert torch.equal(call(*tensors, 64, **narrow), call(*tensors, 64, **wide))
    with pytest.raises(ValueError, match="B has dtype bf16; it must be f32"):
        call(*tensors[:3], tensors[3].bfloat16(), tensors[4], 64)


@pytest.mark.parametrize("name", OPTIONS)
def test_drop_in_against_mamba_ssm(gpu, name):
    theirs = pytest.importorskip("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined
    if theirs is tilemamba.mamba_ssm.mamba_chunk_scan_combined:
        pytest.skip("mamba_ssm is patched")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensors, more = problem(gpu, dtype=dtype)
        tensors[1] = torch.nn.functional.softplus(tensors[1])
        options = OPTIONS[name](tensors, more)
        ours = tilemamba.mamba_ssm.mamba_chunk_scan_combined(*tensors, 64, **options, return_final_states=True)
        right_y, right_states = recurrence(*tensors, **options)
        if "seq_idx" in options:
            options["seq_idx"] = options["seq_idx"].int()  # theirs takes no other
        for our, their, right in zip(
            ours, theirs(*tensors, 64, **options, return_final_states=True), (right_y, right_states[-1])
        ):
            assert our.shape == their.shape and our.dtype == their.dtype
            if "seq_idx" not in options:  # where mamba_ssm is wrong
                error, error_of_theirs = (torch.linalg.norm(answer.double() - right) for answer in (our, their))
                assert error <= 1.1 * error_of_theirs + 2e-6 * torch.linalg.norm(right)


# ------------------------------------------------------------------------------------------------------------ transformers


def test_language_models_give_the_same_tokens(device, monkeypatch):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3}
    models = [
        transformers.Mamba2ForCausalLM(
            transformers.Mamba2Config(**sizes, num_heads=8, head_dim=16, state_size=32, n_groups=2, chunk_size=16)
        ),
        transformers.BambaForCausalLM(
            transformers.BambaConfig(
                **sizes,
                intermediate_size=128,
                num_attention_heads=4,
                num_key_value_heads=2,
                mamba_n_heads=8,
                mamba_d_head=16,
                mamba_d_state=32,
                mamba_n_groups=2,
                mamba_chunk_size=16,
                attn_layer_indices=[1],
            )
        ),
    ]
    models = [model.to(device).eval() for model in models]
    ids = torch.randint(0, 100, (2, 37), device=device)

    def run():
        with torch.no_grad():
            return [(model.generate(ids, max_new_tokens=20, do_sample=False), model(ids).logits) for model in models]

    calls = []
    original = tilemamba._core.call
    monkeypatch.setattr(tilemamba._core, "call", lambda *arguments: calls.append(1) or original(*arguments))
    before = run()
    assert not calls
    for module in (sys.modules[type(model).__module__] for model in models):  # so that it is undone
        for name in ("mamba_chunk_scan_combined", "mamba2_chunk_scan"):
            monkeypatch.setattr(module, name, getattr(module, name, None), raising=False)
    replaced = tilemamba.mamba_ssm.patch()
    assert {name.rpartition(".")[0] for name in replaced} >= {type(model).__module__ for model in models}
    after = run()
    assert len(calls) == 2 * (3 + 2)  # a prefill and a forward, layers with a scan
    for (tokens, logits), (same_tokens, near_logits) in zip(before, after):
        assert torch.equal(tokens, same_tokens)
        torch.testing.assert_close(near_logits, logits, rtol=1e-3, atol=1e-4)


def test_patch_reaches_mamba_ssm_and_who_has_imported_from_it(monkeypatch):
    """A stand-in for an installed mamba_ssm. The last test: what is patched stays so."""

    def theirs():
        raise AssertionError("mamba_ssm's own")

    modules = {name: types.ModuleType(name) for name in ("mamba_ssm.ops.triton.ssd_combined", "model", "stranger")}
    for name, module in modules.items():
        module.mamba_chunk_scan_combined = theirs if name != "stranger" else lambda: "another function of this name"
        monkeypatch.setitem(sys.modules, name, module)
    replaced = tilemamba.mamba_ssm.patch()
    ours = tilemamba.mamba_ssm.mamba_chunk_scan_combined
    assert {f"{name}.mamba_chunk_scan_combined" for name in modules if name != "stranger"} <= set(replaced)
    assert [module.mamba_chunk_scan_combined is ours for module in modules.values()] == [True, True, False]
