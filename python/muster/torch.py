"""PyTorch modules whose parameters, gradients and optimizer state are sharded by libmuster (CPU).

    sharded = muster.torch.shard(model, units=model.blocks, optimizer="adamw")
    for x, y in batches:
        loss = model(x, y)
        loss.backward()
        sharded.step(lr=3e-4, clip_norm=1.0)

A unit is a module whose parameters are gathered and released as one; parameters of no unit belong to the root. Hooks gather a unit
before its forward and its backward, release it after them, and average its gradients over the ranks while backward goes on. A
parameter's full tensor has one address for life, with memory only while its unit is gathered: autograd keeps tensors of it
from forward to backward, and the next gather fills them again.

Every rank runs the same modules in the same order. Parameters between passes have their shape but no values, and reading or writing
them is an error that names the parameter (torch_guard.py): `sharded.state_dict()`, `sharded.load_state_dict()` and
`sharded.gathered()` are for that; `sharded.save_state()` and `load_state()` let a later run go on. Under `muster run`,
torchrun, mpirun or srun ranks find each other by the launcher's variables; without any there is one rank.
"""

import contextlib
import ctypes
import weakref

import torch

from muster.library import MusterError, ShardOptions, ShardResult, ShardStats, ShardStep, load
from muster.torch_guard import MEMBERS, Hook, SavedTensors, refuse_optimizers, touched, watch
from muster.torch_states import MASTER, MOMENTS, READ, WRITE, States
from muster.torch_units import Group, Unit, assign, nesting, units_of

OPTIMIZERS = {None: 0, "sgd": 1, "adam": 2, "adamw": 3}
DTYPES = {torch.float32: 0, torch.float64: 1}
NARROW = {torch.bfloat16: 2, torch.float16: 3}
TRAIN, EVALUATE = range(2)  # kinds of passes, as READ and WRITE, each with its recorded order


class Sharded(States):
    """A module that is sharded: made by `shard`."""

    def __init__(self, module, units=None, *, optimizer="adamw", momentum=False, parameter_class=None, reshard_after_forward=True,
                 hold_gradients=False, prefetch=1, threads=0, timeout=None, world=None, init=None, param_dtype=None,
                 reduce_dtype=None, cast_inputs=True, replicas=1, group=None):
        self.module, self.reshard_after_forward, self.synchronizes = module, reshard_after_forward, True
        self.hold_gradients, self.in_backward, self.clip_norm = hold_gradients, False, 0.0
        self.saved, self.forwards, self.keeps_graph = SavedTensors(), 0, False
        self.library = load()
        modules = units_of(module, units)
        plan = assign(module, modules)
        parameters = [p for _, _, owned in plan for p in owned]
        _check_first(module, parameters)
        self.units = []
        self.dtype = _common_dtype(parameters)
        self.param_dtype, self.moments = param_dtype or self.dtype, {"adam": 2, "adamw": 2, "sgd": int(momentum)}.get(optimizer, 0)
        self.reduce_dtype = reduce_dtype or self.param_dtype
        self.has_masters = self.param_dtype != self.dtype
        self.input_dtype = self.param_dtype if self.has_masters and cast_inputs else None
        meta = [p.names[0] for p in parameters if p.parameter.is_meta]
        if meta:
            _check_meta(module)
        self._open(world, group, optimizer, momentum, prefetch, threads, timeout, replicas, -1 if hold_gradients else nesting(plan) + 2)
        try:
            self._register(plan, parameter_class)
            self.call("muster_shard_ready")
            self._connect()
            self._store_initial(init)
            _trim()
        except BaseException:
            self.close()
            raise
        for unit in self.units:
            unit.module.register_forward_pre_hook(Hook(unit.before_forward), prepend=True, with_kwargs=True)
            unit.module.register_forward_hook(Hook(unit.after_forward), always_call=True)
        module.register_state_dict_pre_hook(Hook(self._refuse_state_dict))
        module.register_load_state_dict_pre_hook(Hook(self._refuse_load))
        watch(self)
        refuse_optimizers()

    # ---- creation ----

    def _open(self, world, group, optimizer, momentum, prefetch, threads, timeout, replicas, slots):
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {optimizer!r}, but must be one of {', '.join(map(repr, OPTIMIZERS))}")
        for name, wanted in (("param_dtype", self.param_dtype), ("reduce_dtype", self.reduce_dtype)):
            if wanted != self.dtype and not (wanted in NARROW and self.dtype == torch.float32):
                raise ValueError(f"{name} is {wanted}, but must be torch.bfloat16, torch.float16 or None, beside float32 parameters")
        options = ShardOptions()
        self.library.muster_shard_defaults(ctypes.byref(options))
        options.dtype, options.optimizer, options.momentum = DTYPES[self.dtype], OPTIMIZERS[optimizer], int(momentum)
        options.param_dtype, options.reduce_dtype = ({**DTYPES, **NARROW}[d] for d in (self.param_dtype, self.reduce_dtype))
        options.prefetch, options.threads, options.gradient_slots = prefetch, threads, slots
        options.replicas = -1 if replicas == "nodes" else replicas
        options.timeout_ms = 0 if timeout is None else int(timeout * 1000)
        group = None if group is None else _group_of(group)
        self.world = self.library.call("muster_world_open", None) if world is None else world
        handles = {"world": self.world if world is None else None, "part": None, "shard": None}
        self._handles, self._finalizer = handles, weakref.finalize(self, _close, self.library, handles)
        if group is not None:
            ranks = _ranks_of(group, self.library.muster_world_rank(self.world), self.library.muster_world_size(self.world))
            self.world = handles["part"] = self.library.call("muster_world_split", self.world, ranks[0], ranks.index(torch.distributed.get_rank()))
        handles["shard"] = self.library.call("muster_shard_create", self.world, ctypes.byref(options))
        self.rank, self.size = self.library.muster_world_rank(self.world), self.library.muster_world_size(self.world)

    def closed(self):
        return self._handles["shard"] is None

    def parameters(self):
        return [p for unit in self.units for p in unit.parameters()]

    def handle(self):
        """libmuster's object, of which it checks nothing; a closed module has none."""
        if self._handles["shard"] is None:
            raise RuntimeError("the sharded module was closed")
        return self._handles["shard"]

    def call(self, name, *arguments):
        return self.library.call(name, self.handle(), *arguments)

    def _register(self, plan, parameter_class):
        self.units, self.root = [], None
        for module, name, owned in plan:
            groups = []
            for frozen in (False, True):
                members = [p for p in owned if p.parameter.requires_grad != frozen]
                if not members:
                    continue
                group = Group((name or "(root)") + (" (frozen)" if frozen else ""), members, frozen)
                group.index = self.call("muster_shard_group", group.name.encode(), int(frozen))
                for p in members:
                    c = parameter_class(p.names[0], p.parameter) if parameter_class else 0
                    p.index = self.call("muster_shard_parameter", p.names[0].encode(), p.shape.numel(), c)
                groups.append(group)
            unit = Unit(self, module, name, groups)
            self.units.append(unit)
            if module is self.module:
                self.root = unit

    def _connect(self):
        """Full tensors, and the hooks of gradients."""
        for unit in self.units:
            for group in unit.groups:
                for p in group.parameters:
                    p.place(self.library.muster_shard_address(self.handle(), p.index), self.param_dtype)
                first, size = group.parameters[0].address, self.param_dtype.itemsize
                group.dtype, group.views = self.reduce_dtype, {}
                group.offsets = [(p.address - first) // size * group.dtype.itemsize for p in group.parameters]

    def _store_initial(self, init):
        """The parameters become rank 0's; those on the meta device are made here, one unit at a time."""
        self.call("muster_shard_begin", WRITE)
        for unit in self.units:
            kept = {}
            if self.has_masters:
                self._write_initial(unit, init)
                continue
            for group in unit.groups:
                self.call("muster_shard_gather", group.index)
                for p in group.parameters:
                    if p.parameter.is_meta:
                        kept[p.parameter] = p
                        p.parameter = torch.nn.Parameter(p.full, p.parameter.requires_grad)
                    elif self.rank == 0:
                        p.full.copy_(p.parameter.data)
                        p.parameter.data = p.full
            if kept:
                _materialize(self.module, kept, init)
            for group in unit.groups:
                self.call("muster_shard_store", group.index, 0)
                for p in group.parameters:
                    p.hide()
                self.call("muster_shard_release", group.index)
        for unit in self.units:
            for group in unit.groups:
                for i, p in enumerate(group.parameters if not group.frozen else ()):
                    p.parameter.register_post_accumulate_grad_hook(
                        Hook(lambda parameter, unit=unit, group=group, i=i: unit.gradient_arrived(group, i, parameter)))

    def _write_initial(self, unit, init):
        """The masters become rank 0's parameters, in full precision."""
        kept, parameters = {}, [p for group in unit.groups for p in group.parameters]
        for p in parameters:
            if p.parameter.is_meta:
                kept[p.parameter] = p
                p.parameter = torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype), p.parameter.requires_grad)
        if kept:
            _materialize(self.module, kept, init)
        for p in parameters:
            self._write(p, MASTER, p.parameter.data.contiguous() if self.rank == 0 else torch.empty(p.shape, dtype=p.dtype))
            p.hide()

    # ---- passes ----

    @staticmethod
    def in_graph():
        return torch._C._current_graph_task_id() != -1

    def begin_pass(self):
        if self.in_graph():
            return
        if self.in_backward:  # it has failed: nothing of it counts
            self.zero_grad()
        for unit in self.units:
            for group in unit.groups:
                for p in group.parameters if group.frozen else ():
                    if p.parameter.requires_grad:
                        raise RuntimeError(f"{p.names[0]} was frozen when the module was sharded and requires a gradient now")
        self.call("muster_shard_begin", TRAIN if torch.is_grad_enabled() else EVALUATE)

    def enter(self):
        """A forward of a unit begins. What autograd keeps is seen from the outermost one on."""
        if self.forwards == 0 and torch.is_grad_enabled() and not self.in_graph():
            self.saved.push()
        self.forwards += 1

    def leave(self):
        self.forwards -= 1
        if self.forwards == 0:
            self.saved.pop()

    def begin_backward(self, creates_graph=False):
        """creates_graph: of this backward; a backward through it needs the parameters too, so they stay until that is done."""
        if not self.in_backward:
            self.in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_done)
        self.keeps_graph = self.keeps_graph or creates_graph

    def _backward_done(self):
        """Units without an input that needs a gradient, and late gradients."""
        touched(self)
        for unit in reversed(self.units):
            unit.after_backward()
        self.in_backward = self.keeps_graph = False

    def touched(self):
        """The parameter whose memory was accessed while it was released, or -1."""
        return -1 if self.closed() else self.library.muster_shard_touched(self.handle())

    @contextlib.contextmanager
    def no_sync(self):
        """Backward in it keeps gradients whole; the next backward outside of it reduces their sum."""
        if not self.hold_gradients:
            raise RuntimeError("no_sync() needs memory for all gradients: shard(..., hold_gradients=True)")
        self.synchronizes = False
        try:
            yield
        finally:
            self.synchronizes = True

    # ---- the step ----

    def step(self, lr=1e-3, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-8, momentum=0.0, dampening=0.0, nesterov=False,
             clip_norm=None, norm=False):
        """Updates from the reduced gradients and forgets them. lr, weight_decay: a number, or one for each parameter class.
        Returns (norm of the gradients or 0.0, whether the step was skipped because that norm was not finite)."""
        for unit in self.units:
            unit.let_go()  # after a forward without backward
        self.check_module()
        touched(self)
        step, result = ShardStep(), ShardResult(size=ctypes.sizeof(ShardResult))
        self.library.muster_shard_step_defaults(ctypes.byref(step))
        for name, given, values in (("lr", lr, step.learning_rate), ("weight_decay", weight_decay, step.weight_decay)):
            values[:] = _of_classes(name, given)
        step.beta1, step.beta2 = betas
        step.epsilon, step.momentum, step.dampening, step.nesterov = eps, momentum, dampening, int(nesterov)
        step.clip_norm, step.norm = self.clip_norm if clip_norm is None else clip_norm, int(norm)
        self.clip_norm = 0.0
        self.call("muster_shard_step", ctypes.byref(step), ctypes.byref(result))
        self._forget_reduced()
        return result.grad_norm, bool(result.skipped)

    def clip_grad_norm_(self, max_norm):
        """As torch.nn.utils.clip_grad_norm_: returns the norm; the next step scales the gradients by it."""
        for unit in self.units:
            unit.let_go()
        norm = ctypes.c_double()
        self.call("muster_shard_grad_norm", ctypes.byref(norm))
        self.clip_norm = float(max_norm)
        return torch.tensor(norm.value, dtype=self.dtype)

    def zero_grad(self):
        self.in_backward = False
        for unit in self.units:
            unit.let_go()
            for group in unit.groups:
                group.arrived.clear()
                group.base = None
                for p in group.parameters:
                    p.parameter.grad = None
        self.call("muster_shard_discard")
        self._forget_reduced()

    def _forget_reduced(self):
        for unit in self.units:
            for group in unit.groups:
                group.reduced = False

    def statistics(self):
        stats = ShardStats(size=ctypes.sizeof(ShardStats))
        self.call("muster_shard_statistics", ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in ShardStats._fields_[1:]}

    def local(self, parameter, what=0):
        """This rank's elements of a parameter (0), its reduced gradient (1) or its optimizer state (2, 3): a flat tensor over
        libmuster's memory and the index of its first element, or (None, 0)."""
        p = next((p for p in self.parameters() if p.parameter is parameter), None)
        if p is None:
            raise ValueError("local() takes a parameter of the sharded module")
        first, count = ctypes.c_int64(), ctypes.c_int64()
        at = self.library.muster_shard_part(self.handle(), p.index, what, ctypes.byref(first), ctypes.byref(count))
        if not at:
            return None, 0
        buffer = (ctypes.c_char * (count.value * p.dtype.itemsize)).from_address(at)
        return torch.frombuffer(buffer, dtype=p.dtype, count=count.value), first.value

    # ---- the end ----

    def close(self):
        """The parameters have no values any more. Also done when the object is collected."""
        self.saved.pop()
        for p in self.parameters():
            p.forget()
        self._finalizer()


def shard(module, units=None, **options):
    """Shards a module: every rank keeps 1/size of its parameters, gradients and optimizer state. Collective; the parameters
    become rank 0's.

    units: modules that are gathered as one; None: the items of the outermost ModuleLists.
    optimizer: "adamw", "adam", "sgd" (with momentum=True for a momentum), or None: `local` has what another needs.
    parameter_class(name, parameter): 0 to 7, selects learning rate and decay in `step`.
    reshard_after_forward: False keeps all units gathered until their backward.
    hold_gradients: memory for no_sync().
    replicas: HYBRID_SHARD: so many copies of the shards, each over neighbouring ranks ("nodes": one for each node): parameters are
    gathered inside of a copy, and only gradients of a rank's own part go between copies. As many as ranks: nothing is sharded.
    prefetch: units that are gathered ahead. threads: of the optimizer. timeout: seconds that a collective waits for other ranks.
    param_dtype: torch.bfloat16 or float16: gathered parameters and their gradients; masters and optimizer state stay float32, and
    the module computes in these 16 bits. reduce_dtype: of gradients on their way, None: as param_dtype. cast_inputs: floating
    inputs of units become param_dtype. Losses are not scaled.
    group: the ranks to shard over: a process group that this rank is in, or one dimension of a DeviceMesh, mesh["data"]. Every rank of the
    world calls with its own group at the same time. None: all ranks. `rank`, `size` and `replicas` are of the group then.
    init(module): fills a module whose parameters were on the meta device; None: its reset_parameters()."""
    return Sharded(module, units, **options)


def _group_of(group):
    """The process group that a dimension of a DeviceMesh is, or the group itself."""
    if hasattr(group, "get_group"):  # a DeviceMesh
        if group.ndim != 1:
            names = ", ".join(f"mesh[{name!r}]" for name in group.mesh_dim_names or ())
            raise ValueError(f"group is a mesh of {group.ndim} dimensions: give one of them{names and ', ' + names}")
        group = group.get_group()
    if not isinstance(group, torch.distributed.ProcessGroup):
        raise TypeError(f"group is {group!r}, but must be a process group that this rank is in, or a dimension of a DeviceMesh")
    return group


def _ranks_of(group, rank, size):
    """The group's ranks in the world, which has to be torch.distributed's."""
    distributed = torch.distributed
    found = distributed.get_rank(), distributed.get_world_size()
    if found != (rank, size):
        raise RuntimeError(f"torch.distributed has rank {found[0]} of {found[1]}, and libmuster's world rank {rank} of {size}: a group needs the same ranks")
    return sorted(distributed.get_process_group_ranks(group))


def _common_dtype(parameters):
    if not parameters:
        raise ValueError("the module has no parameters")
    for p in parameters:
        if p.dtype not in DTYPES or p.dtype != parameters[0].dtype:
            raise ValueError(f"{p.names[0]} is {p.dtype}: all parameters have to be float32, or all float64")
        if not p.parameter.is_meta and p.parameter.device.type != "cpu":
            raise ValueError(f"{p.names[0]} is on {p.parameter.device}: only modules on the CPU are sharded")
        if p.shape.numel() == 0:
            raise ValueError(f"{p.names[0]} of shape {tuple(p.shape)} has no elements to share out: remove it, or make it a buffer")
    return parameters[0].dtype


def _of_classes(name, given):
    """A value for each of the 8 parameter classes, from a number, a tensor of one element, or a sequence; a class that it leaves out has 0."""
    if isinstance(given, torch.Tensor) and given.numel() == 1:
        given = given.item()
    if isinstance(given, str) or not hasattr(given, "__len__"):
        try:
            return [float(given)] * 8
        except (TypeError, ValueError):
            raise TypeError(f"{name} is {given!r}, but must be a number, or a number for each parameter class") from None
    if len(given) > 8:
        raise ValueError(f"{name} has {len(given)} values, and there are 8 parameter classes")
    return [float(value) for value in given] + [0.0] * (8 - len(given))


def _check_first(module, parameters):
    if isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        raise ValueError(f"{type(module).__name__} reduces gradients itself: shard the module inside of it, module.module")
    for p in parameters:
        member = MEMBERS.get(id(p.parameter))
        if member is not None:
            state = "was sharded, and its sharded module was closed" if member.unit.closed() else "is sharded already"
            raise RuntimeError(f"{p.names[0]} {state}: a module is sharded once")


def _check_meta(module):
    for name, buffer in module.named_buffers():
        if buffer.is_meta:
            raise ValueError(f"buffer {name} is on the meta device: make buffers on the CPU")


def _materialize(module, kept, init):
    """Puts the new parameters in the place of the meta device's, and fills them."""
    touched = []
    for child in module.modules():
        for key, old in child._parameters.items():
            if old in kept:
                child._parameters[key] = kept[old].parameter
                touched.append(child)
    with torch.no_grad():
        for child in dict.fromkeys(touched):
            if init is None and not hasattr(child, "reset_parameters"):
                raise ValueError(f"{type(child).__name__} has no reset_parameters(): pass init=")
            init(child) if init else child.reset_parameters()


def _trim():
    """Gives the memory of the parameters as they were back to the system, where the C library can."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _close(library, handles):
    shard, worlds = handles["shard"], (handles["part"], handles["world"])
    handles["shard"] = handles["part"] = handles["world"] = None
    library.muster_shard_destroy(shard)
    for world in filter(None, worlds):  # the part before the whole
        library.muster_world_close(ctypes.byref(ctypes.c_void_p(world)))


__all__ = ["MusterError", "Sharded", "shard"]
