"""Keeps released parameters from answering (`muster.torch`): an access outside of a gather is an error that names the parameter.

- `Released` is the class of a parameter while its unit is not gathered: its shape can be asked for, its values cannot.
- `saved_tensors` sees every tensor that autograd keeps for backward: a parameter's tensor gathers its unit when backward needs it,
  however the module's output has travelled there.
- `watch` is for views that neither sees (`w = layer.weight.t()`, kept by the program): a fault in the memory of a released parameter
  becomes a RuntimeError."""

import contextlib
import ctypes
import signal
import weakref

import torch

MEMBERS = weakref.WeakValueDictionary()  # id(parameter): torch_units.Parameter
PLACES = {}  # address of the full tensor: torch_units.Parameter

# properties of a parameter without its values
PROPERTIES = {"shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "grad_fn", "names", "itemsize", "nbytes", "output_nr",
              "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks", "_version", "is_sparse", "is_sparse_csr", "is_quantized", "is_meta",
              "is_cuda", "is_cpu", "is_mps", "is_xpu", "is_mkldnn", "is_nested", "is_hpu", "is_ipu", "is_xla", "is_maia", "is_vulkan", "is_mtia"}
METHODS = {"size", "dim", "ndimension", "nelement", "numel", "stride", "element_size", "is_floating_point", "is_complex", "is_contiguous", "is_signed",
           "is_inference", "get_device", "has_names", "is_pinned", "is_shared", "requires_grad_", "register_hook", "retain_grad",
           "register_post_accumulate_grad_hook", "__len__", "__hash__", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
           "randint_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided", "result_type", "can_cast", "is_same_size", "_has_compatible_shallow_copy_type"}
CONVERSIONS = {"to", "float", "double", "half", "bfloat16", "cpu", "type", "type_as"}


class Released(torch.nn.Parameter):
    """A parameter without its values."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        name, accessor = function.__name__, None
        if name in ("__get__", "__set__", "__delete__"):
            name, accessor = getattr(function.__self__, "__name__", "?"), name
        tensor = next(_released((arguments, keywords)), None)
        allowed = name in PROPERTIES if accessor else name in METHODS
        if name == "grad":
            allowed = _may_see_gradient(tensor, accessor, arguments)
        elif name == "data" and accessor == "__set__":
            allowed = arguments[0] is arguments[1]
        with torch._C.DisableTorchFunctionSubclass():
            if allowed:
                return function(*arguments, **keywords)
            if name in CONVERSIONS and arguments and arguments[0] is tensor:
                probe = torch.empty((0,), dtype=tensor.dtype)
                with contextlib.suppress(Exception):  # a function that this torch cannot do is refused by name
                    if function(probe, *arguments[1:], **keywords) is probe:
                        return tensor
        raise RuntimeError(refusal(tensor, name))

    def __deepcopy__(self, memo):
        raise RuntimeError(refusal(self, "deepcopy"))

    def __reduce_ex__(self, protocol):
        raise RuntimeError(refusal(self, "pickle"))

    def __repr__(self, *, tensor_contents=None):
        return f"Parameter({_name(self)}: {list(self.shape)}, {self.dtype}, sharded)"

    def __format__(self, spec):
        return repr(self)


def _released(value):
    if isinstance(value, Released):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _released(item)
    elif isinstance(value, dict):
        yield from _released(list(value.values()))


def _name(tensor):
    member = MEMBERS.get(id(tensor))
    return member.names[0] if member else "a parameter"


def _may_see_gradient(tensor, accessor, arguments):
    member = MEMBERS.get(id(tensor))
    if accessor == "__set__":
        return arguments[1] is None
    return member is None or not member.unit.has_reduced()


def refusal(tensor, action):
    """What to say to an access, and what to do instead."""
    member, name = MEMBERS.get(id(tensor)), _name(tensor)
    unit = member.unit.name if member else ""
    if member is None or member.unit.closed():
        return f"{name} was sharded, and its sharded module was closed: it has no values ({action})"
    owner = f"unit {unit}" if unit else "the root unit"
    if action == "grad":
        return (f"the gradient of {name} is reduced and sharded: sharded.local(parameter, 1) is this rank's part; sharded.clip_grad_norm_(), "
                "sharded.step() and sharded.zero_grad() are in place of torch's")
    if action in CONVERSIONS or action in ("cuda", "xpu", "share_memory_", "pin_memory", "_typed_storage"):
        return (f"{name} is sharded as {tensor.dtype} on the CPU: {action}() cannot convert it. Convert the module before muster.torch.shard(), or "
                "pass param_dtype=")
    inside = "with sharded.gathered():"
    if action == "data" or action.endswith("_") and not action.endswith("__"):
        inside = "with sharded.gathered(write=True):"
    return (f"{name} is sharded and has no values here ({action}): it belongs to {owner}, which is gathered during its own forward and backward "
            f"alone. Call that module itself{', leave it out of units=' if unit else ''}, or do it on every rank in `{inside}`; sharded.state_dict() has all values")


# ---- hooks of modules ----


class Hook:
    """A hook of a sharded module. Copies and pickles of the module, made while it is gathered, are plain modules."""

    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments)

    def __deepcopy__(self, memo):
        return no_hook

    def __reduce__(self):
        return _no_hook, ()


def no_hook(*unused):
    """In copies of a sharded module."""


def _no_hook():
    return no_hook


# ---- what autograd keeps ----


def _pack(tensor):
    try:
        member = PLACES.get(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # sparse tensors, and others without a storage
        member = None
    return member, tensor, tensor._version


def _unpack(packed):
    member, tensor, version = packed
    if tensor._version != version:
        raise RuntimeError(f"one of the variables needed for gradient computation has been modified by an inplace operation: a {tensor.dtype} "
                           f"{list(tensor.shape)} is at version {tensor._version}; expected version {version} instead. Use the operation that makes a new tensor, "
                           "such as torch.relu(x) or nn.ReLU(inplace=False); torch.autograd.set_detect_anomaly(True) names the one that kept it")
    if member is not None:
        member.unit.needed(torch.is_grad_enabled())
    return tensor


class SavedTensors:
    """Sees what autograd keeps, from `push` to `pop`, unless hooks of somebody else do (activation checkpoints have theirs: they make
    everything anew in backward)."""

    def __init__(self):
        self.pushed = False

    def push(self):
        autograd = torch._C._autograd
        if self.pushed or not autograd._saved_tensors_hooks_is_enabled() or autograd._top_saved_tensors_default_hooks(True) is not None:
            return
        autograd._push_saved_tensors_default_hooks(_pack, _unpack)
        self.pushed = True

    def pop(self):
        if self.pushed:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            self.pushed = False


# ---- memory of released parameters ----

_watched = weakref.WeakSet()
_signal = []  # its number; [0]: no signal can be had
NOTIFY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def touched(sharded):
    """Raises if a released parameter was accessed by its memory."""
    index = sharded.touched()
    if index >= 0:
        member = next(p for p in sharded.parameters() if p.index == index)
        raise RuntimeError(f"a tensor that shares memory with {member.names[0]} was used while {member.unit.title()} was not gathered: it has read NaN, "
                           "and what it wrote is lost. A view or detached tensor of a sharded parameter lasts as long as the forward, the backward "
                           "or the gathered() that it was made in: clone() it there, or take it anew")


def _raise_touched(*unused):
    for sharded in list(_watched):
        touched(sharded)


def _free_signal():
    """A signal that nobody uses, for Python to run a function of ours: the handler of the fault itself runs inside of a kernel."""
    with contextlib.suppress(ValueError):  # not the main thread
        for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _raise_touched)
                return number
    return 0


def watch(sharded):
    if not _signal:
        _signal.append(_free_signal())
    _watched.add(sharded)
    notify = getattr(ctypes.pythonapi, "PyErr_SetInterruptEx", None) if _signal[0] else None
    sharded.call("muster_shard_guard", ctypes.cast(notify, ctypes.c_void_p) if notify else None, _signal[0])


# ---- optimizers of torch ----


def _refuse_optimizer(optimizer, *unused):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            member = MEMBERS.get(id(parameter))
            if member and parameter.requires_grad:
                raise RuntimeError(f"{type(optimizer).__name__}.step(): {member.names[0]} is sharded, and torch's optimizers see no gradient of it. "
                                   "sharded.step() updates it, with the optimizer that shard() was given")


_refusing = []


def refuse_optimizers():
    if not _refusing:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        _refusing.append(register_optimizer_step_pre_hook(_refuse_optimizer))
