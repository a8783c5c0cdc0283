"""One rank of torch_test.py: PyTorch modules sharded by libmuster against the same module whole, and against fully_shard.

usage: cases.py FOLDER, under `muster run`; FOLDER is for files that the ranks share."""

import contextlib
import copy
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path[:0] = [str(pathlib.Path(os.environ["MUSTER_SOURCE"]) / "python"), str(pathlib.Path(__file__).parent)]
os.environ["MUSTER_LIBRARY"] = str(pathlib.Path(os.environ["MUSTER_BUILD"]) / "lib" / "libmuster.so")
os.environ["HF_HUB_OFFLINE"] = "1"
import muster.torch  # noqa: E402
import guard_cases  # noqa: E402

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FULL = "--full" in sys.argv
ROWS, LENGTH, VOCABULARY = 8, 12, 67
COURSE = 20 if FULL else 6  # steps of transformers' models; faults show in the first two
RATE = 1e-3 if FULL else 1e-2
EXACT, SINGLE = 1e-10, 1e-6  # relative: float64 sums of another order; the floor of T1 in float32


class Block(torch.nn.Module):
    def __init__(self, width, kind="plain"):
        super().__init__()
        self.kind = kind
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)
        if kind == "unused":
            self.never = torch.nn.Parameter(torch.ones(width))
        if kind == "mixed":
            self.up.weight.requires_grad_(False)
        if kind == "frozen":
            self.requires_grad_(False)

    def forward(self, x, scale=1.0):
        return x + scale * self.down(F.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """A small GPT without attention; the head's weight is the embedding's, one block is used twice."""

    def __init__(self, kinds=("plain",) * 4, width=24, twice=False, remake=None):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, width)
        self.blocks = torch.nn.ModuleList(Block(width, kind) for kind in kinds)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.5))
        self.twice, self.remake = twice, remake

    def forward(self, tokens, targets, fail=False):
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            if fail and i == 2:
                raise ValueError("made to fail")
            if self.remake is None:
                x = block(x, scale=self.scale)
            else:
                x = checkpoint(block, x, self.scale, use_reentrant=self.remake)
        if self.twice:
            x = self.blocks[0](x, scale=self.scale)
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float() if logits.itemsize < 4 else logits, targets.flatten())


def made(dtype=torch.float64, **options):
    torch.manual_seed(3)
    model = Model(**options).to(dtype)
    with torch.no_grad():
        model.embedding.weight.mul_(0.1)
    return model


def batch(step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    return tokens, (tokens * 3 + 1) % VOCABULARY


def mine(rows):
    return [part.tensor_split(SIZE)[RANK] for part in rows]


def mean(value):
    total = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / SIZE


def close(got, want, bound, what):
    far = abs(got - want) / max(abs(want), 1e-30)
    assert far <= bound, f"{what}: {got!r} is not {want!r}: {far:.1e} relative, allowed {bound:.1e}"


def same_parameters(sharded, whole, bound, what):
    full = sharded.state_dict()
    if RANK == 0:
        assert list(full) == list(whole.state_dict()), what
        for name, want in whole.state_dict().items():
            far = (full[name] - want).norm() / want.norm().clamp_min(1e-30)
            assert far <= bound, f"{what}: {name} differs by {far:.1e} (L2, relative), allowed {bound:.1e}"


def told(compute):
    """What rank 0 alone computes, on every rank: the others would compute the same, in its time on a small machine."""
    box = [compute() if RANK == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def whole_run(model, steps, lr, clip, pieces=1, forward=None, weight_decay=0.01, optimizer=torch.optim.AdamW):
    """Losses of one process with the whole batch, in pieces that are added up."""
    forward = forward or (lambda m, x, y: m(x, y))
    update, losses = optimizer([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=weight_decay), []
    for step in range(steps):
        total = 0.0
        for part in zip(*(rows.tensor_split(pieces) for rows in batch(step))):
            loss = forward(model, *part) / pieces
            loss.backward()
            total += loss.item()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        update.step()
        update.zero_grad()
        losses.append(total)
    return losses


def sharded_run(sharded, steps, lr, clip, pieces=1, forward=None, hold=False, first=0, **values):
    forward = forward or (lambda m, x, y: m(x, y))
    losses = []
    for step in range(first, steps):
        total, parts = 0.0, list(zip(*(rows.tensor_split(pieces) for rows in mine(batch(step)))))
        for i, part in enumerate(parts):
            last = i == pieces - 1
            with sharded.no_sync() if hold and not last else contextlib.nullcontext():
                loss = forward(sharded.module, *part) / pieces
                loss.backward()
            total += loss.item()
        sharded.step(lr=lr, clip_norm=clip, **values)
        losses.append(mean(total))
    return losses


def compared(what, steps=5, clip=1.0, dtype=torch.float64, bound=EXACT, pieces=1, hold=False, options=None, **model):
    plain = made(dtype, **{k: v for k, v in model.items() if k != "remake"})
    want = told(lambda: whole_run(plain, steps, 1e-2, clip, pieces))
    sharded = muster.torch.shard(made(dtype, **model), **(options or {}))
    got = sharded_run(sharded, steps, 1e-2, clip, pieces, hold=hold)
    for step, (a, b) in enumerate(zip(got, want)):
        close(a, b, bound, f"{what}, loss of step {step}")
    same_parameters(sharded, plain, bound * 10, what)
    sharded.close()


# ---- the cases ----


def exact_in_float64():
    compared("plain", steps=20)
    compared("without clip, prefetch 3", clip=0.0, options={"prefetch": 3})
    compared("without prefetch, kept gathered", options={"prefetch": 0, "reshard_after_forward": False})


def modules_of_every_kind():
    compared("a block used twice", twice=True)
    compared("unused parameters", kinds=("plain", "unused", "plain"))
    compared("mixed requires_grad, a frozen block", kinds=("plain", "mixed", "frozen", "mixed"))
    compared("a frozen first block", kinds=("frozen", "plain"))


def accumulation():
    if ROWS // SIZE >= 2:
        compared("each pass reduced", pieces=2)
        compared("reduced with the last pass", pieces=2, hold=True, options={"hold_gradients": True})


def activation_checkpoints():
    compared("not reentrant", remake=False)
    compared("reentrant", remake=True)


def other_optimizers():
    for name, optimizer in (("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)):
        plain = made()
        want = told(lambda: whole_run(plain, 4, 1e-2, 0.0, optimizer=optimizer))
        sharded = muster.torch.shard(made(), optimizer=name)
        for a, b in zip(sharded_run(sharded, 4, 1e-2, 0.0), want):
            close(a, b, EXACT, name)
        sharded.close()


def nested_units():
    """Every Linear a unit inside its block's unit, parameter classes, and clipping as a call of its own."""
    plain, model = made(), made()
    decays = [p for p in plain.parameters() if p.dim() > 1]
    others = [p for p in plain.parameters() if p.dim() < 2]
    update = torch.optim.AdamW([{"params": decays, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}], lr=1e-2)
    units = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not model.head] + list(model.blocks)
    sharded = muster.torch.shard(model, units, parameter_class=lambda name, p: int(p.dim() < 2))
    for step in range(4):
        loss = plain(*batch(step))
        loss.backward()
        want = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.7)
        update.step()
        update.zero_grad()
        model(*mine(batch(step))).backward()
        close(sharded.clip_grad_norm_(0.7).item(), want.item(), EXACT, "norm")
        sharded.step(lr=1e-2, weight_decay=[0.3, 0.0])
    same_parameters(sharded, plain, EXACT, "nested")
    sharded.close()


def transformers_models():
    """A GPT-2 and a Llama in float32: as far from the whole model as this is from itself with another order of sums (T1)."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    def gpt2():
        torch.manual_seed(5)
        config = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
                            attn_pdrop=0.0)
        return GPT2LMHeadModel(config)

    def llama():
        torch.manual_seed(5)
        config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2, tie_word_embeddings=False)
        return LlamaForCausalLM(config)

    def forward(model, tokens, targets):
        return F.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1), targets.flatten())

    for make in (gpt2, llama):
        want = told(lambda: whole_run(make(), COURSE, RATE, 1.0, forward=forward))
        control = told(lambda: whole_run(make(), COURSE, RATE, 1.0, pieces=4, forward=forward))
        bound = max(SINGLE, 3 * max(abs(a - b) / b for a, b in zip(control, want)))
        sharded = muster.torch.shard(make())
        got = sharded_run(sharded, COURSE, RATE, 1.0, forward=forward)
        peer = fully_sharded(make(), COURSE, RATE, 1.0, forward)
        for step, (a, b, c) in enumerate(zip(got, want, peer)):
            close(a, b, bound, f"{make.__name__}, step {step}, whole")
            close(a, c, 2 * bound, f"{make.__name__}, step {step}, fully_shard")
        assert want[-1] < want[0] - 0.1, "it learns"
        sharded.close()


def fully_sharded(model, steps, lr, clip, forward, policy=None, nudge=0, shape=(SIZE,)):
    """PyTorch's own FSDP2 with gloo. nudge: a seed with which each update is moved by its last place, up or down. shape: of the mesh;
    of two dimensions the first one is of replicas."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh, losses = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):]), []
    policy = MixedPrecisionPolicy(**policy) if policy else MixedPrecisionPolicy()
    for child in model.modules():
        if isinstance(child, torch.nn.ModuleList):
            for block in child:
                fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    update = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    generator = torch.Generator().manual_seed(nudge)
    for step in range(steps):
        loss = forward(model, *mine(batch(step)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        update.step()
        update.zero_grad()
        losses.append(mean(loss.item()))
        for p in model.parameters() if nudge else ():
            part = p.to_local().detach()
            part.copy_(torch.nextafter(part, torch.randn(part.shape, generator=generator) * torch.inf))
    return losses


def hybrid():
    """Replicas of shards: the whole module's losses, fully_shard's on a mesh of two dimensions, and states in and out of them."""
    for replicas in sorted({1, 2, SIZE}):
        if SIZE % replicas:
            continue
        options = {"replicas": replicas}
        compared(f"{replicas} replicas", options=options)
        if ROWS // SIZE >= 2:
            compared(f"{replicas} replicas, reduced with the last pass", pieces=2, hold=True, options={**options, "hold_gradients": True})
    compared("a replica for each node, of which there is one", steps=2, options={"replicas": "nodes"})
    if SIZE == 1:
        return
    want = fully_sharded(made(), 5, 1e-2, 1.0, lambda m, x, y: m(x, y), shape=(2, SIZE // 2))
    sharded = muster.torch.shard(made(), replicas=2)
    got = sharded_run(sharded, 5, 1e-2, 1.0)
    for step, (a, b) in enumerate(zip(got, want)):
        close(a, b, EXACT, f"fully_shard of 2 x {SIZE // 2}, step {step}")
    part, _ = sharded.local(sharded.module.blocks[0].up.weight)
    assert SIZE == 4 or part.numel() == sharded.module.blocks[0].up.weight.numel(), "2 replicas of 2 ranks have all of it"
    sharded.close()
    sharded = muster.torch.shard(made(torch.float32), replicas=2, param_dtype=torch.bfloat16)
    losses = sharded_run(sharded, 20, 1e-3, 1.0)
    assert losses[-1] < losses[0] - 0.1, "it learns in 16 bits"
    sharded.close()
    for wrong, text in ((3, f"replicas is 3, which does not divide {SIZE} ranks"), (-5, "replicas is -5, but must be from -1")):
        try:
            muster.torch.shard(made(), replicas=wrong)
        except muster.torch.MusterError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"accepted {wrong} replicas")


def same_gradients(policy):
    """To the bit between two ranks; of more, gloo adds in another order and rounds each of its SIZE - 1 partial sums, which may be
    larger than the result, to reduce_dtype."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    peer, sharded = made(torch.float32), muster.torch.shard(made(torch.float32), **policy)
    for module in (*peer.blocks, peer):
        fully_shard(module, mp_policy=MixedPrecisionPolicy(**policy))
    for model in (peer, sharded.module):
        model(*mine(batch(0))).backward()
    want = {name: p.grad.full_tensor().flatten() for name, p in peer.named_parameters()}
    for name, p in sharded.module.named_parameters():
        got, first = sharded.local(p, 1)
        if got is None:
            continue
        part = want[name][first : first + got.numel()]
        far = ((got - part).norm() / part.norm().clamp_min(1e-30)).item()
        bound = 0.0 if SIZE < 3 else SIZE * 2.0**-8 if policy["reduce_dtype"] is None else SINGLE
        assert far <= bound, f"{policy}: gradient of {name} differs by {far:.1e} (L2, relative), allowed {bound:.1e}"
    sharded.close()


def sixteen_bits():
    """As fully_shard with a MixedPrecisionPolicy: the first loss and the first gradients to the bit, later ones as near as its own
    with updates that are rounded otherwise."""
    def forward(model, tokens, targets):
        return model(tokens, targets)

    def small():
        return made(torch.float32, kinds=("plain",) * (4 if FULL else 2))

    for dtype, reduce in ((torch.bfloat16, None), (torch.bfloat16, torch.float32), (torch.float16, torch.float32)):
        policy = {"param_dtype": dtype, "reduce_dtype": reduce}
        run = (20, 1e-3, 1.0, forward)  # after fewer steps the controls are too near each other
        same_gradients(policy)
        if SIZE != 2 and reduce is not None and not FULL:
            continue  # three of PyTorch's runs and ours on two cores: the courses of losses of one policy, of all by two ranks and in the full run
        want = fully_sharded(small(), *run, policy)
        others = [fully_sharded(small(), *run, policy, nudge=seed) for seed in ((1, 2, 3) if FULL else (1, 2))]
        sharded = muster.torch.shard(small(), **policy)
        got = sharded_run(sharded, *run[:3], forward=forward)
        distance = [max(abs(a - b) / b for a, b in zip(other, want)) for other in (got, *others)]
        distance[1:] = [max(distance[1:])]
        if RANK == 0:
            print(f"{SIZE} ranks, {dtype}, reduced as {reduce}: {distance[0]:.1e} from fully_shard, its own control {distance[1]:.1e}", flush=True)
        assert got[0] == want[0], "the same roundings"
        assert distance[0] <= max(SINGLE, 3 * distance[1]), f"{dtype}, {reduce}: {distance[0]:.1e}, control {distance[1]:.1e}"
        assert want[-1] < want[0] - 0.1, "it learns"
        assert sharded.module.norm.weight.dtype == dtype
        part, _ = sharded.local(sharded.module.blocks[0].up.weight)
        assert part is None or part.dtype == torch.float32, "masters"
        state = sharded.state_dict()
        assert RANK or state["norm.weight"].dtype == torch.float32
        sharded.close()
    # gradients of several passes are added up in reduce_dtype, then reduced once
    if ROWS // SIZE >= 2:
        losses = []
        for options in ({"reduce_dtype": torch.float32, "hold_gradients": True}, {"reduce_dtype": torch.float32}):
            sharded = muster.torch.shard(made(torch.float32), param_dtype=torch.bfloat16, **options)
            losses.append(sharded_run(sharded, 4, 1e-3, 1.0, pieces=2, forward=forward, hold="hold_gradients" in options))
            sharded.close()
        for a, b in zip(*losses):
            close(a, b, 1e-4, "held and reduced each time")
    for wrong in ({"param_dtype": torch.int8}, {"reduce_dtype": torch.float64}):
        try:
            muster.torch.shard(made(torch.float32), **wrong)
        except ValueError as error:
            assert next(iter(wrong)) in str(error), error
        else:
            raise AssertionError("accepted " + str(wrong))


def resume(folder):
    """A run that goes on from a file goes on byte for byte; a file of another model is refused on every rank."""
    for name, options in (("adamw", {}), ("adamw", {"param_dtype": torch.bfloat16}), ("sgd", {"momentum": True}), ("adam", {"replicas": SIZE // 2 or 1})):
        def one():
            return muster.torch.shard(made(torch.float32, kinds=("plain", "unused", "frozen", "plain")), optimizer=name, **options)

        def steps(sharded, first, last):
            losses = []
            for step in range(first, last):
                loss = sharded.module(*mine(batch(step)))
                loss.backward()
                sharded.step(lr=1e-2, clip_norm=1.0, momentum=0.9 if name == "sgd" else 0.0)
                losses.append(loss.item())
            return losses

        path = folder / f"{name}.state"
        through = one()
        steps(through, 0, 3)
        through.save_state(path)
        want, full = steps(through, 3, 6), through.state_dict()
        again = one()
        steps(again, 7, 8)  # another history, which is forgotten
        again.load_state(path)
        assert steps(again, 3, 6) == want, f"{name} {options}: {want}"
        held = again.state_dict()
        assert all(torch.equal(held[key], full[key]) for key in full), name
        wrong = muster.torch.shard(made(torch.float32), optimizer=name, **options)
        for text, broken in (("was saved by another model", path), ("No such file", folder / "absent")):
            try:
                wrong.load_state(broken)
            except (OSError, ValueError, RuntimeError) as error:
                assert text in str(error), error
            else:
                raise AssertionError("loaded another model's state")
        for sharded in (through, again, wrong):
            sharded.close()
        dist.barrier()
    assert sorted(p.name for p in folder.iterdir() if p.name.endswith("part")) == []


def resume_elsewhere(folder):
    """States that worlds of other sizes have saved after three steps: the next three losses are the whole model's."""
    want = told(lambda: whole_run(made(), 6, 1e-2, 1.0))
    for path in sorted(folder.glob("world-*.state")):
        sharded = muster.torch.shard(made())
        sharded.load_state(path)
        for step, loss in enumerate(sharded_run(sharded, 6, 1e-2, 1.0, first=3), 3):
            close(loss, want[step], EXACT, f"{path.name} at {SIZE} ranks, step {step}")
        sharded.close()
    sharded = muster.torch.shard(made())
    sharded_run(sharded, 3, 1e-2, 1.0)
    sharded.save_state(folder / f"world-{SIZE}.state")
    sharded.close()


def states(folder):
    """In and out: a state_dict, a file, another world's values; a value that does not fit is an error on every rank."""
    first = muster.torch.shard(made())
    sharded_run(first, 2, 1e-2, 1.0)
    state = first.state_dict()
    assert bool(state) == (RANK == 0)
    torch.manual_seed(11)
    second = muster.torch.shard(Model().double())
    second.load_state_dict(state)
    again = second.state_dict()
    assert all(torch.equal(again[name], state[name]) for name in state)
    first.save(folder / "model.safetensors")
    if RANK == 0:
        held = read_safetensors(folder / "model.safetensors")
        assert set(held) == set(state) - {"head.weight"}, "tied weights once"
        assert all(torch.equal(held[name], state[name]) for name in held)
        state.pop("norm.bias")
        state["other"] = torch.zeros(1)
    try:
        second.load_state_dict(state)
    except RuntimeError as error:
        assert 'Missing key(s) in state_dict: "norm.bias".' in str(error) and 'Unexpected key(s) in state_dict: "other".' in str(error), error
    else:
        raise AssertionError("loaded what does not fit")
    with second.gathered(write=True) as model, torch.no_grad():
        model.norm.bias.fill_(RANK + 7)
    with second.gathered() as model:
        assert bool((model.norm.bias == 7).all()), "rank 0's"
    for sharded in (first, second):
        sharded.close()


def read_safetensors(path):
    import json
    import struct

    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    kinds, out = {"F64": torch.float64, "F32": torch.float32}, {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        out[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[entry["dtype"]]).view(entry["shape"])
    return out


def from_the_meta_device():
    torch.manual_seed(2)
    with torch.device("meta"):
        model = Model()
    model.scale = torch.tensor(0.5)
    sharded = muster.torch.shard(model)
    state = sharded.state_dict()
    if RANK == 0:
        close(state["blocks.2.up.weight"].std().item(), (3 * 24) ** -0.5, 0.1, "Linear's own initial values")
        assert bool((state["norm.weight"] == 1).all())
        assert state["head.weight"] is state["embedding.weight"]
    losses = sharded_run(sharded, 8, 1e-2, 1.0)
    assert losses[-1] < losses[0]
    sharded.close()


def failures():
    """Exceptions leave a module that goes on; mistakes are named."""
    plain = made()
    sharded = muster.torch.shard(made())
    model = sharded.module
    for what in ("forward", "backward", "evaluation"):
        try:
            if what == "forward":
                model(*mine(batch(0)), fail=True)
            elif what == "backward":
                x = model.embedding.weight.new_zeros(1).requires_grad_()
                broken = torch.autograd.Function
                loss = model(*mine(batch(0)))
                loss.register_hook(lambda g: (_ for _ in ()).throw(ValueError("made to fail")))
                loss.backward()
                del x, broken
            else:
                with torch.no_grad():
                    assert torch.isfinite(model(*mine(batch(0))))
                raise ValueError("made to fail")
        except ValueError as error:
            assert str(error) == "made to fail"
    want, got = whole_run(plain, 3, 1e-2, 1.0), sharded_run(sharded, 3, torch.tensor(1e-2, dtype=torch.float64), 1.0)
    for a, b in zip(got, want):
        close(a, b, EXACT, "after exceptions")
    assert model.norm.weight.shape == plain.norm.weight.shape
    for call, text in (
        (model.state_dict, "sharded.state_dict()"),
        (lambda: sharded.no_sync().__enter__(), "hold_gradients"),
        (lambda: muster.torch.shard(made(), optimizer="lion"), "optimizer is 'lion'"),
        (lambda: muster.torch.shard(made().to(torch.bfloat16)), "float32, or all float64"),
        (lambda: muster.torch.shard(made(), units=[torch.nn.Linear(2, 2)]), "not part of the module"),
        (lambda: sharded.step(lr=float("nan")), "learning_rate is nan"),
        (lambda: sharded.step(lr="fast"), "lr is 'fast'"),
        (lambda: sharded.step(weight_decay=[0.1] * 9), "9 values"),
        (lambda: muster.torch.shard(torch.nn.DataParallel(made())), "module.module"),
    ):
        try:
            call()
        except (RuntimeError, TypeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"nothing said {text}")
    sharded.close()
    if SIZE > 1:
        sharded = muster.torch.shard(made(), timeout=60)
        sharded_run(sharded, 2, 1e-2, 1.0)
        blocks = copy.copy(list(sharded.module.blocks))
        if RANK == 1:  # this rank's forward takes another way
            sharded.module.blocks = torch.nn.ModuleList([blocks[i] for i in (0, 2, 1, 3)])
        try:
            sharded_run(sharded, 1, 1e-2, 1.0)
        except muster.torch.MusterError as error:
            assert "group blocks.1" in str(error) or "group blocks.2" in str(error) or "group blocks.3" in str(error), error
            print(f"rank {RANK}: {error}", flush=True)
        else:
            raise AssertionError("another order was not seen")
        sharded.close()


def pss():
    """Bytes of memory that no file backs, what ranks share divided among them."""
    rows = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
    return sum(int(rows[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


def memory():
    """Shards, slots and gradients in flight are all: measured where most of it is there."""
    width, blocks = 768, 10
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, width))
                                      for _ in range(blocks)))
    small = torch.nn.Linear(64, 64)
    small(torch.randn(4, 64)).square().mean().backward()
    dist.barrier()
    before, peak = pss(), 0
    sharded = muster.torch.shard(model, units=list(model), optimizer="adamw")

    def look(*unused):
        nonlocal peak
        peak = max(peak, pss())

    model[-1].register_forward_hook(look)  # a look takes as long as the unit: forward has most at its end
    for unit in model:
        unit.register_full_backward_hook(look)
    for _ in range(2):
        model(torch.randn(4, width)).square().mean().backward()
        look()
        sharded.step()
        look()
    stats = sharded.statistics()
    whole = blocks * 4 * width * width * 4
    planned = stats["shard_bytes"] + (stats["slot_bytes"] + stats["grad_bytes"] if SIZE > 1 else stats["grad_bytes"])
    assert SIZE == 1 or planned < 4 * whole / SIZE + 6 * whole / blocks, "a few blocks beside the shards"
    temporary = 2 * 2 * width * width * 4  # a block's gradients between autograd and libmuster's memory
    assert peak - before <= planned + temporary + (24 << 20), f"{(peak - before) >> 20} MB, planned {planned >> 20}"
    print(f"rank {RANK} of {SIZE}: memory {(peak - before) >> 20} MB, shards and slots {planned >> 20} MB, whole {4 * whole >> 20} MB", flush=True)
    dist.barrier()
    sharded.close()


def parts_of_a_mesh():
    """A mesh of 2 x 2: each line of a dimension trains a model of its own, as one process would with the line's samples."""
    if SIZE != 4:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("parts", "data"))
    for given, group in ((mesh["data"], mesh["data"].get_group()), (mesh["parts"].get_group(), mesh["parts"].get_group())):
        ranks = dist.get_process_group_ranks(group)

        def line():
            torch.manual_seed(50 + ranks[0])
            return Model().double()

        want = whole_run(line(), 3, 1e-2, 1.0)
        sharded = muster.torch.shard(line(), group=given)
        assert (sharded.rank, sharded.size) == (ranks.index(RANK), 2), (sharded.rank, sharded.size, ranks)
        for step in range(3):
            loss = sharded.module(*(part.tensor_split(2)[sharded.rank] for part in batch(step)))
            loss.backward()
            sharded.step(lr=1e-2, clip_norm=1.0)
            total = loss.detach().clone()
            dist.all_reduce(total, group=group)
            close(total.item() / 2, want[step], EXACT, f"ranks {ranks}, loss of step {step}")
        sharded.close()
    for wrong, says in ((mesh, "give one of them, mesh['parts'], mesh['data']"), ("data", "must be a process group that this rank is in")):
        try:
            muster.torch.shard(made(), group=wrong)
        except (TypeError, ValueError) as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"{wrong} was taken as a group")


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = [memory, exact_in_float64, modules_of_every_kind, accumulation, activation_checkpoints, other_optimizers, nested_units,
             hybrid, parts_of_a_mesh, transformers_models, sixteen_bits, lambda: states(folder), lambda: resume(folder), lambda: resume_elsewhere(folder.parent), from_the_meta_device, failures, guard_cases.Cases(RANK, SIZE, folder).run]
    for case in cases:
        case()
        dist.barrier()
    print(f"rank {RANK} of {SIZE}: {len(cases)} cases", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
