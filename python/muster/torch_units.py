"""The units of a sharded module: what belongs to which, and the hooks that gather, release and reduce them (`muster.torch`)."""

import collections.abc
import ctypes
import dataclasses
import weakref

import torch
from torch.utils import _pytree as pytree

from muster.torch_guard import MEMBERS, PLACES, Released


class Parameter:
    """One tensor of the module: its parameter object, its place in libmuster, its full tensor."""

    def __init__(self, parameter, names):
        self.parameter, self.names = parameter, names
        self.index = self.address = self.full = self.unit = self.kind = None
        self.shape, self.dtype = parameter.shape, parameter.dtype
        self.version = 0  # the parameter's version when it was shown

    def place(self, address, dtype):
        """Where the full tensor will be, and its dtype."""
        self.address, self.full = address, self.tensor_at(address, dtype)
        PLACES[address] = self

    def forget(self):
        """The memory goes: what reads past Released gets NaN."""
        if PLACES.get(self.address) is self:
            del PLACES[self.address]
            with torch._C.DisableTorchFunctionSubclass():
                self.parameter.data = torch.full((), float("nan"), dtype=self.full.dtype).expand(self.shape)

    def show(self):
        """The parameter has its values."""
        if type(self.parameter) is Released:
            self.parameter.__class__ = self.kind
        self.version = self.parameter._version

    def hide(self):
        """It has none, and says so. Its data stays at the address without memory."""
        if self.parameter.data_ptr() != self.address:
            self.parameter.data = self.full
        if self.kind is None:
            self.kind = type(self.parameter)
            MEMBERS[id(self.parameter)] = self
        self.parameter.__class__ = Released

    def written(self):
        """The change of the parameter, not of libmuster's memory of it, since it was shown."""
        if self.parameter.data_ptr() != self.address:
            return "has another tensor as its data now"
        return "was written in place" if self.parameter._version != self.version else None

    def tensor_at(self, address, dtype):
        count = self.shape.numel()
        buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        return torch.frombuffer(buffer, dtype=dtype, count=count).view(self.shape)


class AfterBackward(torch.autograd.Function):
    """The identity on a unit's inputs; its backward comes when the unit's backward is done."""

    @staticmethod
    def forward(ctx, unit, *inputs):
        ctx.unit = unit
        return inputs

    @staticmethod
    def backward(ctx, *gradients):
        ctx.unit.after_backward()
        return (None, *gradients)


def tensors_of(value, seen=None):
    """Every tensor in a module's output: containers that torch knows, mappings, sequences, sets, dataclasses, objects of any class."""
    if torch.is_tensor(value):
        yield value
        return
    if value is None or isinstance(value, (str, bytes, bytearray, int, float, complex, torch.nn.Module, type, torch.dtype, torch.device)) or callable(value):
        return
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value
    inner = []
    if isinstance(value, collections.abc.Mapping):
        inner += value.values()
    elif isinstance(value, (collections.abc.Sequence, collections.abc.Set)):
        inner += value
    elif not dataclasses.is_dataclass(value):
        inner += [leaf for leaf in pytree.tree_leaves(value) if leaf is not value]
    inner += getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        inner += [getattr(value, name, None) for name in ((slots,) if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__")]
    for item in inner:
        yield from tensors_of(item, seen)


class Group:
    """Parameters that libmuster gathers as one: the trained parameters of a unit, or its frozen parameters."""

    def __init__(self, name, parameters, frozen):
        self.name, self.parameters, self.frozen, self.index = name, parameters, frozen, None
        self.offsets = self.views = self.base = self.dtype = None  # for gradients; base: their current address
        self.arrived = set()  # gradients of this pass, by position
        self.reduced = False  # since the last step

    def gradient(self, position, base):
        """The tensor of a gradient in the gradient memory at base; there are few such places."""
        if (position, base) not in self.views:
            self.views[position, base] = self.parameters[position].tensor_at(base + self.offsets[position], self.dtype)
        return self.views[position, base]


class Unit:
    def __init__(self, owner, module, name, groups):
        self.owner, self.module, self.name, self.groups = weakref.proxy(owner), module, name, groups
        self.uses = 0  # gathers without release
        self.forwards = 0  # of them by forwards that run
        self.held = False  # one of them for backward
        self.writable = False  # in gathered(write=True)
        for p in self.parameters():
            p.unit = self

    def parameters(self):
        return [p for group in self.groups for p in group.parameters]

    def title(self):
        return f"unit {self.name}" if self.name else "the root unit"

    def has_reduced(self):
        return any(group.reduced for group in self.groups)

    def closed(self):
        try:
            return self.owner.closed()
        except ReferenceError:
            return True

    # ---- memory ----

    def gather(self):
        for group in self.groups:
            self.owner.call("muster_shard_gather", group.index)
        self.uses += 1
        if self.uses == 1:
            for p in self.parameters():
                p.show()

    def release(self):
        self.uses -= 1
        lost = None
        if self.uses == 0:
            for p in self.parameters():
                if not self.writable and p.written():
                    lost = f"{p.names[0]} {p.written()}: sharded parameters keep what is written in `with sharded.gathered(write=True):` alone"
                p.hide()
        for group in self.groups:
            self.owner.call("muster_shard_release", group.index)
        return lost

    def hold(self):
        if not self.held:
            self.gather()
            self.held = True

    def let_go(self):
        if self.held:
            self.held = False
            self._complain(self.release())

    @staticmethod
    def _complain(lost):
        if lost:
            raise RuntimeError(lost)

    # ---- forward ----

    def before_forward(self, module, args, kwargs):
        if self is self.owner.root:
            self.owner.begin_pass()
        self.gather()
        self.forwards += 1
        self.owner.enter()
        cast = self.owner.input_dtype
        hooked = torch.is_grad_enabled() and not (self.held and self.owner.in_graph())
        if not hooked and cast is None:
            return None  # also a forward that is repeated in backward, for a unit that backward holds
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if cast is not None:
            leaves = [x.to(cast) if torch.is_tensor(x) and x.is_floating_point() else x for x in leaves]
        if not hooked:
            return pytree.tree_unflatten(leaves, spec)
        at = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf) and leaf.requires_grad]
        if not at:
            return None if cast is None else pytree.tree_unflatten(leaves, spec)
        if torch._C._functorch.maybe_current_level() is not None:
            raise RuntimeError(f"{self.title()} of a sharded module cannot be differentiated by torch.func: its gradients come by loss.backward(). "
                               "`with sharded.gathered(): copy.deepcopy(module)` is a plain module")
        for i, leaf in zip(at, AfterBackward.apply(self, *(leaves[i] for i in at))):
            leaves[i] = leaf
        return pytree.tree_unflatten(leaves, spec)

    def after_forward(self, module, args, output):
        if not self.forwards:
            return  # the gather has failed
        self.forwards -= 1
        self.owner.leave()
        if torch.is_grad_enabled() and not (self.held and self.owner.in_graph()):
            # a leaf is no result of this forward: a hook of it would stay
            outputs = [x for x in tensors_of(output) if x.requires_grad and x.grad_fn is not None]
            for tensor in outputs:
                tensor.register_hook(self.before_backward)
            if self.owner.in_graph():
                self.needed()  # repeated by a checkpoint: backward goes on with what it has kept, by whatever way
            elif outputs and (self is self.owner.root or not self.owner.reshard_after_forward):
                self.hold()
        self._complain(self.release())

    # ---- backward ----

    def needed(self, creates_graph=False):
        """Backward is about to use parameters."""
        if self.owner.in_graph():
            self.owner.begin_backward(creates_graph)
            self.hold()

    def before_backward(self, gradient):
        self.needed(torch.is_grad_enabled())

    def after_backward(self):
        self.reduce()
        if not self.owner.keeps_graph:
            self.let_go()

    @torch.no_grad()
    def gradient_arrived(self, group, position, parameter):
        self.owner.begin_backward()
        base = group.base
        if base is None:
            base = group.base = self.owner.call("muster_shard_gradient", group.parameters[0].index)
        with torch._C.DisableTorchFunctionSubclass():
            view, gradient = group.gradient(position, base), parameter.grad
            if gradient.layout != torch.strided:
                gradient = gradient.to_dense()
            if gradient.data_ptr() != view.data_ptr():  # else autograd has added to it in place
                if position in group.arrived:
                    view.add_(gradient)
                else:
                    view.copy_(gradient)
            group.arrived.add(position)
            # held gradients stay where they are, and later passes add to them; others are reduced at once
            parameter.grad = None if self.owner.synchronizes or view.dtype != parameter.dtype else view

    def reduce(self):
        if not self.owner.synchronizes:
            return
        for group in self.groups:
            if not group.arrived:
                continue
            addresses = (ctypes.c_void_p * len(group.parameters))()
            for i in group.arrived:
                addresses[i] = group.base + group.offsets[i]
                group.parameters[i].parameter.grad = None
            group.arrived.clear()
            group.base = None
            group.reduced = True
            self.owner.call("muster_shard_reduce", group.index, addresses)


# ---- which unit owns what ----


def units_of(module, units):
    if units is None:
        units, outer = [], []
        for name, child in module.named_modules():
            if isinstance(child, torch.nn.ModuleList) and not any(name.startswith(o + ".") for o in outer):
                outer.append(name)
                units += [item for item in child if any(True for _ in item.parameters())]
    return [unit for unit in dict.fromkeys(units) if unit is not module]


def assign(module, units):
    """[(module, name, its parameters)], the root last: a parameter belongs to the innermost unit that has all its uses."""
    names = {child: name for name, child in module.named_modules()}
    for unit in units:
        if unit not in names:
            raise ValueError(f"a unit of type {type(unit).__name__} is not part of the module")
    plan = {unit: [] for unit in sorted(units, key=lambda unit: list(names).index(unit))}
    plan[module] = []
    owners = {}
    for child, name in names.items():
        for key, parameter in child._parameters.items():
            if parameter is not None:
                if torch.nn.parameter.is_lazy(parameter):
                    raise ValueError(f"{name}.{key} has no shape yet: run the module once before it is sharded".lstrip("."))
                owners.setdefault(parameter, []).append((name, f"{name}.{key}" if name else key))
    everywhere = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        everywhere.setdefault(parameter, []).append(name)
    for parameter, uses in owners.items():
        inside = [u for u in units if all(n == names[u] or n.startswith(names[u] + ".") for n, _ in uses)]
        unit = max(inside, key=lambda u: len(names[u])) if inside else module
        plan[unit].append(Parameter(parameter, everywhere[parameter]))
    return [(unit, names[unit], owned) for unit, owned in plan.items()]


def nesting(plan):
    """How many units with parameters lie in each other at most."""
    names = [name for _, name, owned in plan if owned]
    return max((sum(not a or b == a or b.startswith(a + ".") for a in names) for b in names), default=1)
