"""The units of a sharded module: what belongs to which, and the hooks that gather, release and reduce them (`muster.torch`)."""

import ctypes
import weakref

import torch
from torch.utils import _pytree as pytree


class Parameter:
    """One tensor of the module: its parameter object, its place in libmuster, its full tensor."""

    def __init__(self, parameter, names):
        self.parameter, self.names = parameter, names
        self.index = self.address = self.full = self.blank = None
        self.shape, self.dtype = parameter.shape, parameter.dtype

    def place(self, address, dtype):
        """Where the full tensor will be, and its dtype."""
        self.address, self.full = address, self.tensor_at(address, dtype)
        # the right shape without memory: NaN where it is read, an error where it is written in place
        self.blank = torch.full((), float("nan"), dtype=dtype).expand(self.shape)

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


class Group:
    """Parameters that libmuster gathers as one: those of a unit that are trained, or those that are not."""

    def __init__(self, name, parameters, frozen):
        self.name, self.parameters, self.frozen, self.index = name, parameters, frozen, None
        self.offsets = self.views = self.base = self.dtype = None  # of gradients; base: where they are now
        self.arrived = set()  # gradients of this pass, by position

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

    # ---- memory ----

    def gather(self):
        for group in self.groups:
            self.owner.call("muster_shard_gather", group.index)
        self.uses += 1
        if self.uses == 1:
            for group in self.groups:
                for p in group.parameters:
                    p.parameter.data = p.full

    def release(self):
        self.uses -= 1
        if self.uses == 0:
            for group in self.groups:
                for p in group.parameters:
                    p.parameter.data = p.blank
        for group in self.groups:
            self.owner.call("muster_shard_release", group.index)

    def hold(self):
        if not self.held:
            self.gather()
            self.held = True

    def let_go(self):
        if self.held:
            self.held = False
            self.release()

    # ---- forward ----

    def before_forward(self, module, args, kwargs):
        if self is self.owner.root:
            self.owner.begin_pass()
        self.gather()
        self.forwards += 1
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
        for i, leaf in zip(at, AfterBackward.apply(self, *(leaves[i] for i in at))):
            leaves[i] = leaf
        return pytree.tree_unflatten(leaves, spec)

    def after_forward(self, module, args, output):
        if not self.forwards:
            return  # the gather has failed
        self.forwards -= 1
        if torch.is_grad_enabled() and not (self.held and self.owner.in_graph()):
            outputs = [x for x in pytree.tree_leaves(output) if torch.is_tensor(x) and x.requires_grad]
            for tensor in outputs:
                tensor.register_hook(self.before_backward)
            if outputs and (self is self.owner.root or not self.owner.reshard_after_forward):
                self.hold()
        self.release()

    # ---- backward ----

    def before_backward(self, gradient):
        self.owner.begin_backward()
        self.hold()

    def after_backward(self):
        self.reduce()
        self.let_go()

    def gradient_arrived(self, group, position, parameter):
        base = group.base
        if base is None:
            base = group.base = self.owner.call("muster_shard_gradient", group.parameters[0].index)
        view, gradient = group.gradient(position, base), parameter.grad
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
