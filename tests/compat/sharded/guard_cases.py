"""Cases of cases.py: outputs of every kind reach backward's gathers, and parameters that are not gathered refuse by name."""

import collections
import contextlib
import copy
import dataclasses
import io
import re
import struct

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import muster.torch

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Data:
    value: torch.Tensor


class Plain:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Frozen(dict):
    """A mapping that torch's pytree takes for one leaf."""


class Closed:
    """Nothing finds the tensor in it."""

    def __init__(self, value):
        self.value = lambda: value


# name: (a block's result, how the next one gets its tensor)
KINDS = {
    "a namedtuple": (lambda x: Pair(x, None), lambda o: o.first),
    "a dataclass": (Data, lambda o: o.value),
    "nested containers": (lambda x: {"a": [(Data(x), 1)]}, lambda o: o["a"][0][0].value),
    "an object": (Plain, lambda o: o.value),
    "an object with slots": (Slotted, lambda o: o.value),
    "a subclass of dict": (lambda x: Frozen(x=x), lambda o: o["x"]),
    "an object that nothing sees into": (Closed, lambda o: o.value()),
    "a generator": (lambda x: iter([x]), next),
    "a lambda": (lambda x: lambda: x, lambda o: o()),
}


class Cell(torch.nn.Module):
    def __init__(self, width, kind=None):
        super().__init__()
        self.up, self.down, self.kind = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width), kind

    def forward(self, x):
        x = self.down(torch.tanh(self.up(x)))
        return KINDS[self.kind][0](x) if self.kind else x


class Net(torch.nn.Module):
    def __init__(self, kind=None, width=6, remake=None):
        super().__init__()
        self.inner, self.kind, self.remake = torch.nn.Linear(5, width), kind, remake
        self.blocks = torch.nn.ModuleList(Cell(width, kind) for _ in range(3))
        self.head = torch.nn.Linear(width, 4)

    def encode(self, x):
        x = self.inner(x)
        for block in self.blocks:
            if self.remake is not None:
                x = checkpoint(block, x, use_reentrant=self.remake)
            else:
                x = block(x)
            x = KINDS[self.kind][1](x) if self.kind else x
        return x

    def forward(self, x):
        return self.head(self.encode(x))


def made(**options):
    torch.manual_seed(4)
    return Net(**options).double()


def rows(step, count=8):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(count, 5, dtype=torch.float64, generator=generator), torch.randn(count, 4, dtype=torch.float64, generator=generator)


class Cases:
    def __init__(self, rank, size, folder):
        self.rank, self.size, self.folder = rank, size, folder

    def mine(self, pair):
        return [part.tensor_split(self.size)[self.rank] for part in pair]

    def sharded(self, **options):
        return muster.torch.shard(made(**options))

    def refused(self, call, *texts, kind=RuntimeError):
        try:
            call()
        except kind as error:
            for text in texts:
                assert re.search(text, str(error)), f"{error!r} does not say {text!r}"
            return str(error)
        raise AssertionError(f"nothing said {texts}")

    def trained(self, what, model, plain, loss, steps=2):
        sharded, update = muster.torch.shard(model), torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.01)
        for step in range(steps):
            update.zero_grad()
            loss(plain, *rows(step)).backward()
            update.step()
            loss(model, *self.mine(rows(step))).backward()
            sharded.step(lr=1e-2)
        full = sharded.state_dict()
        for name, want in plain.state_dict().items() if self.rank == 0 else ():
            far = ((full[name] - want).norm() / want.norm()).item()
            assert far < 1e-10, f"{what}: {name} differs by {far:.1e}"
        sharded.close()

    def outputs(self):
        """As the whole module, with any result of a block."""
        def loss(model, x, y):
            return F.mse_loss(model(x), y)

        for kind in KINDS:
            self.trained(kind, made(kind=kind), made(), loss)
        for remake in (False, True):
            self.trained(f"a dataclass of a checkpoint, use_reentrant={remake}", made(remake=remake), made(), loss)

        def penalty(model, x, y):
            x = x.clone().requires_grad_()
            out = model(x)
            slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
            return F.mse_loss(out, y) + slope.square().mean()

        self.trained("a backward through a backward", made(), made(), penalty)

    def reads(self):
        """A parameter that is not gathered has a shape and nothing else."""
        sharded = self.sharded()
        model, p = sharded.module, sharded.module.head.weight
        assert p.shape == (4, 6) and p.numel() == 24 and p.dtype == torch.float64 and p.requires_grad and p.grad is None
        assert isinstance(p, torch.nn.Parameter) and p in set(model.parameters()) and torch.zeros_like(p).sum() == 0
        assert "head.weight" in repr(p) and sum(q.numel() for q in model.parameters()) == sum(q.numel() for q in made().parameters())
        assert model.to("cpu") is model and model.double() is model and model.train(False).train() is model
        x = torch.ones(2, 6, dtype=torch.float64)
        for call in (lambda: F.linear(x, p), lambda: x @ p.t(), lambda: model.head(x), lambda: model.encode(rows(0)[0]), lambda: p.norm(),
                     lambda: p.data, lambda: p.detach(), p.tolist, p.numpy, p.clone, lambda: p + 1, lambda: x * p[0], lambda: p[0, 0].item(),
                     lambda: torch.stack([p, p]), lambda: torch.cat((p, p)), lambda: p == p, lambda: copy.deepcopy(p), lambda: copy.deepcopy(model),
                     lambda: torch.save(p, io.BytesIO()), lambda: torch.save(model, io.BytesIO()), lambda: torch.optim.swa_utils.AveragedModel(model),
                     lambda: torch.func.functional_call(model.head, {"weight": p.detach()}, x), lambda: torch.stack(list(p)),
                     model.half, model.bfloat16, lambda: model.to(torch.float32), model.head.state_dict, lambda: torch.nn.utils.parameters_to_vector(
                         model.parameters()), p.data_ptr, lambda: torch.nn.utils.parametrizations.weight_norm(model.head)):
            self.refused(call, r"(head|inner|blocks\.0\.up)\.(weight|bias) is sharded")
        for call in (lambda: p.zero_(), lambda: torch.nn.init.xavier_uniform_(p), lambda: torch.nn.init.zeros_(p), lambda: p.copy_(torch.ones(4, 6)),
                     lambda: setattr(p, "data", torch.ones(4, 6)), lambda: torch.nn.init.normal_(p)):
            with torch.no_grad():
                self.refused(call, r"head\.weight is sharded", r"write=True")
        self.refused(lambda: muster.torch.shard(model), "inner.weight is sharded already|head.weight is sharded already|is sharded already")
        self.refused(model.state_dict, r"sharded\.state_dict\(\)")
        by_parameters = torch.func.grad(lambda values: torch.func.functional_call(model, values, (rows(0)[0],)).sum())
        self.refused(lambda: by_parameters(dict(model.named_parameters())), r"unit blocks\.0 of a sharded module cannot be differentiated by torch\.func")
        sharded.zero_grad()
        self.refused(lambda: model.load_state_dict(made().state_dict()), r"sharded\.load_state_dict\(\)")
        self.refused(lambda: model.head.load_state_dict(made().head.state_dict()), r"head\.weight is sharded")
        F.mse_loss(model(self.mine(rows(0))[0]), self.mine(rows(0))[1]).backward()
        self.refused(lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), r"gradient of inner\.weight", r"sharded\.clip_grad_norm_")
        self.refused(model.zero_grad, "gradient of inner.weight", r"sharded\.zero_grad")
        self.refused(torch.optim.SGD(model.parameters(), lr=0.1).step, r"SGD\.step\(\): inner\.weight is sharded", r"sharded\.step\(\)")
        sharded.step()
        model.zero_grad()
        sharded.close()
        for call in (lambda: model(x), sharded.step, sharded.zero_grad, lambda: sharded.local(p), lambda: sharded.save_state("/nowhere/state"),
                     sharded.state_dict, lambda: sharded.gathered().__enter__(), lambda: sharded.clip_grad_norm_(1.0)):
            self.refused(call, "was closed")
        sharded.close()  # once more
        self.refused(lambda: p.norm(), "head.weight was sharded, and its sharded module was closed")

    def views(self):
        """A tensor that shares memory with a parameter, and outlives its gather."""
        sharded = self.sharded()
        model = sharded.module
        with sharded.gathered():
            kept = model.blocks[1].up.weight.detach().t()
        if self.size > 1:
            self.refused(lambda: [kept.sum() for _ in range(2)], r"blocks\.1\.up\.weight was used while unit blocks\.1 was not gathered", r"clone\(\)")
            self.refused(lambda: [kept.sum() for _ in range(2)], r"blocks\.1\.up\.weight")  # again
            self.refused(lambda: [torch.vmap(lambda row: row.sum())(model.head.weight) for _ in range(2)], r"head\.weight")  # goes past Python

        class Keeps(torch.autograd.Function):  # what no hook sees: a view in an attribute
            @staticmethod
            def forward(ctx, x, weight):
                ctx.kept = weight.detach()[:, :6]
                return x + 0 * ctx.kept.sum()

            @staticmethod
            def backward(ctx, gradient):
                return gradient * ctx.kept.sum(), None

        first = model.blocks[1]
        first.register_forward_hook(lambda module, inputs, output: Keeps.apply(output, module.up.weight))
        x, y = self.mine(rows(0))
        if self.size > 1:
            before = sharded.state_dict()
            self.refused(lambda: (F.mse_loss(model(x), y).backward(), None), r"blocks\.1\.up\.weight was used|is sharded")
            sharded.zero_grad()
            after = sharded.state_dict()
            assert all(torch.equal(before[name], after[name]) for name in before)
        first._forward_hooks.popitem()
        loss = F.mse_loss(model(x), y)
        assert torch.isfinite(loss)
        loss.backward()
        sharded.step()
        sharded.close()

    def writes(self):
        """Kept in gathered(write=True), and refused where they would be lost."""
        sharded = self.sharded()
        model = sharded.module
        with sharded.gathered(write=True), torch.no_grad():
            model.head.weight.fill_(self.rank + 3)
            model.head.bias.data = torch.full((4,), 5.0 + self.rank, dtype=torch.float64)
        full = sharded.state_dict()
        if self.rank == 0:
            assert bool((full["head.weight"] == 3).all()) and bool((full["head.bias"] == 5).all())

        def lost(write):
            with sharded.gathered(), torch.no_grad():
                write(model.head.weight)

        for write in (lambda p: p.fill_(1), lambda p: p.data.fill_(2), lambda p: setattr(p, "data", torch.ones_like(p))):
            self.refused(lambda: lost(write), r"head\.weight (was written|has another tensor)", "write=True")
        model.blocks[1].register_forward_pre_hook(lambda module, inputs: torch.nn.init.zeros_(module.up.bias) is None or None)
        self.refused(lambda: model(rows(0)[0]), r"blocks\.1\.up\.bias was written in place")
        model.blocks[1]._forward_pre_hooks.popitem()

        def converted():
            with sharded.gathered(write=True):
                model.float()

        self.refused(converted, "float32")
        with sharded.gathered(write=True):
            model.double()
        with sharded.gathered():  # a module made inside is a plain module
            twin, data = copy.deepcopy(model), io.BytesIO()
            average = torch.optim.swa_utils.AveragedModel(model)
            torch.save(model, data)
        data.seek(0)
        x, y = rows(1)
        want = twin(x)
        want.sum().backward()
        assert twin.head.weight.grad is not None and twin.state_dict().keys() == made().state_dict().keys()
        assert torch.equal(torch.load(data, weights_only=False)(x), want) and torch.equal(average(x), want)
        assert torch.allclose(model(x), want)
        with sharded.gathered():
            average.update_parameters(model)
        model.head.weight = torch.nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
        self.refused(sharded.step, r"head\.weight was replaced")
        sharded.close()
        sharded = self.sharded()
        sharded.module.blocks[0].added = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.refused(sharded.step, r"blocks\.0\.added was added")
        sharded.close()

    def states(self):
        """load_state_dict as torch's, on every rank; buffers in files."""
        torch.manual_seed(5)
        whole = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)).double()
        torch.manual_seed(6)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)).double()
        whole(rows(0)[0])
        plain, sharded = copy.deepcopy(model), muster.torch.shard(model, units=[model[0], model[2]])

        def state(change=lambda held: None):
            held = {name: value.clone() for name, value in whole.state_dict().items()}
            change(held)
            return held if self.rank == 0 else {}

        def same(expected):
            held = sharded.state_dict()
            if self.rank == 0:
                assert list(held) == list(expected) and all(torch.equal(held[name], expected[name]) for name in expected)
            assert all(torch.equal(a, b) for a, b in zip(model.buffers(), (v for n, v in expected.items() if n.startswith("1.running") or "num" in n)))

        before = plain.state_dict()
        for change in (lambda held: held.update({"2.weight": torch.zeros(1, 8)}), lambda held: held.update({"2.weight": torch.zeros(())}),
                       lambda held: held.update({"1.running_mean": torch.zeros(1)}), lambda held: held.pop("0.bias"),
                       lambda held: held.update(other=torch.zeros(1)), lambda held: held.update({"0.weight": 3}), lambda held: held.pop("1.running_var")):
            wrong = {name: value.clone() for name, value in whole.state_dict().items()}
            change(wrong)
            want = self.refused(lambda: copy.deepcopy(plain).load_state_dict(wrong), "Error")
            name = next(n for n in ("2.weight", "1.running_mean", "0.bias", "other", "0.weight", "1.running_var") if n in want)
            said = self.refused(lambda: sharded.load_state_dict(state(change)), re.escape(name), "^" if self.rank == 0 else "^rank 0: ")
            assert ("size mismatch" in said) == ("size mismatch" in want) and ("Missing key" in said) == ("Missing key" in want), said
        same(before)
        extra = sharded.load_state_dict(state(lambda held: (held.pop("0.bias"), held.update(other=torch.zeros(1)))), strict=False)
        assert (extra.missing_keys, extra.unexpected_keys) == (["0.bias"], ["other"])
        self.refused(lambda: sharded.load_state_dict(state(lambda held: held.update({"2.weight": torch.zeros(1, 8)})), strict=False), "size mismatch for 2.weight")
        for prefix, kind in (("", torch.float32), ("_orig_mod.", torch.float64), ("module.", torch.float64), ("module._orig_mod.", torch.float64)):
            held = {prefix + name: value.to(kind) if value.is_floating_point() else value for name, value in whole.state_dict().items()}
            result = sharded.load_state_dict(held if self.rank == 0 else {})
            assert not result.missing_keys and not result.unexpected_keys
            same({name: value.to(kind).double() if value.is_floating_point() else value for name, value in whole.state_dict().items()})
        path = self.folder / f"buffers-{self.size}.safetensors"
        sharded.save(path)
        sharded.save_state(f"{path}.state")
        if self.rank == 0:
            data = path.read_bytes()
            assert all(f'"{name}"'.encode() in data[: 8 + struct.unpack("<Q", data[:8])[0]] for name in whole.state_dict())
        with torch.no_grad():
            for buffer in model.buffers():
                buffer.zero_()
        sharded.load_state(f"{path}.state")
        same(whole.state_dict())
        with contextlib.suppress(ImportError):
            from safetensors.torch import load_file

            if self.rank == 0:
                assert all(torch.equal(load_file(path)[name], value) for name, value in whole.state_dict().items())
        sharded.close()

    def run(self):
        for case in (self.outputs, self.reads, self.views, self.writes, self.states):
            case()
