"""Full parameters of a sharded module, in and out: `gathered`, state_dict, files (`muster.torch`). All calls are collective. An error of rank 0, which reads and writes, is the same error on every rank."""

import contextlib
import ctypes
import io
import pickle

import torch
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys

from muster.torch_files import SafetensorsReader, SafetensorsWriter

MASTER, MOMENTS = 0, (2, 3)  # enum muster_shard_local
READ, WRITE = 2, 3  # kinds of passes
COMPILED = "_orig_mod."  # what torch.compile puts into names


def plain(name):
    return name.replace(COMPILED, "")


class States:
    """The part of `Sharded` that knows values of parameters."""

    def _read(self, p, kind):
        """All of a parameter's master or moment."""
        values = torch.empty(p.shape, dtype=p.dtype)
        self.call("muster_shard_read", p.index, kind, values.data_ptr())
        return values

    def _write(self, p, kind, values):
        self.call("muster_shard_write", p.index, kind, values.data_ptr(), 0)

    # ---- in memory ----

    def stream(self):
        """(names, full tensor) of each parameter, one unit in memory at a time; a tensor is valid until the next one is
        asked for. With 16-bit parameters it is the master."""
        if self.has_masters:
            for p in self.parameters():
                yield p.names, self._read(p, MASTER)
            return
        self.call("muster_shard_begin", READ)
        for unit in self.units:
            unit.gather()
            try:
                for p in unit.parameters():
                    yield p.names, p.full
            finally:
                unit.release()

    @contextlib.contextmanager
    def gathered(self, write=False):
        """All parameters have their values inside. write: rank 0's become everybody's at the end, masters as they were
        rounded. Copies and pickles of the module that are made inside are plain modules."""
        self.check_module()
        self.call("muster_shard_begin", WRITE)
        for unit in self.units:
            unit.gather()
            unit.writable = write
        lost, sums = None, [] if write else [_sum(p.full) for p in self.parameters()]
        try:
            yield self.module
            lost = self._take_replaced() if write else self._find_written(sums)
        finally:
            for unit in self.units:
                for group in unit.groups if write else ():
                    self.call("muster_shard_store", group.index, 0)
                unit.writable = True  # the written values are known by now
                unit.release()
                unit.writable = False
        if lost:
            raise RuntimeError(lost)

    def _take_replaced(self):
        """`parameter.data = other` is a way to write, too."""
        with torch.no_grad():
            for p in self.parameters():
                data = p.parameter.data
                if data.data_ptr() == p.address:
                    continue
                if data.shape != p.shape or data.dtype != p.full.dtype:
                    return (f"{p.names[0]} has a {data.dtype} {list(data.shape)} as its data, but is sharded as {p.full.dtype} {list(p.shape)}: what "
                            "a sharded module has, and as what, is decided before muster.torch.shard()")
                p.full.copy_(data)
        return None

    def _find_written(self, sums):
        """By whatever way."""
        for p, before in zip(self.parameters(), sums):
            how = p.written() or ("was written" if _sum(p.full) != before else None)
            if how:
                return f"{p.names[0]} {how}, which is lost: `with sharded.gathered(write=True):` keeps what rank 0 has written"
        return None

    def check_module(self):
        """The module has the parameters that were sharded, and no others."""
        known = {id(p.parameter) for p in self.parameters()}
        for child in self.module.modules():
            for key, parameter in child._parameters.items():
                if parameter is None or id(parameter) in known:
                    continue
                name = next(name for name, p in self.module.named_parameters(remove_duplicate=False) if p is parameter)
                if any(name in p.names for p in self.parameters()):
                    raise RuntimeError(f"{name} was replaced after the module was sharded: sharded.load_state_dict(), or `with "
                                       "sharded.gathered(write=True):`, writes values into the parameter that is there")
                raise RuntimeError(f"{name} was added after the module was sharded: add it before muster.torch.shard()")

    # ---- state_dict ----

    def state_dict(self):
        """On rank 0 the module's state_dict with full parameters, elsewhere an empty one."""
        full = {}
        for names, tensor in self.stream():
            if self.rank == 0:
                copy = tensor.clone()
                full.update((name, copy) for name in names)
        if self.rank:
            return {}
        return {k: full[k] if k in full else v.detach() if torch.is_tensor(v) else v for k, v in self._skeleton().items()}

    def _skeleton(self):
        """The module's own state_dict: names in their order, buffers, extra state; parameters without values."""
        self.reading = True
        try:
            return self.module.state_dict(keep_vars=True)
        finally:
            self.reading = False

    reading = False

    def load_state_dict(self, state, strict=True):
        """Parameters, buffers and extra state become equal to rank 0's state; other ranks' argument is not read. Names may have
        torch.compile's `_orig_mod.`, and all of them DistributedDataParallel's `module.`. As torch's: the missing and the
        unexpected names are returned, or refused if strict, and a tensor of another shape is always refused."""
        skeleton = self._skeleton()
        found = missing = unexpected = None
        problem = None
        if self.rank == 0:
            found, missing, unexpected, problem = _match(type(self.module).__name__, skeleton, state, strict)
        self._raise_together(RuntimeError(problem) if problem else None)
        extra = {k: v for k, v in (found or {}).items() if k.endswith(_EXTRA_STATE_KEY_SUFFIX)}
        given = [k for k in found or () if k not in extra]
        missing, unexpected, given, extra = self._from_rank_0((missing, unexpected, given, extra))
        self.call("muster_shard_begin", WRITE)
        if self.has_masters:
            for p in self.parameters():
                values, name = self._read(p, MASTER), _last_of(p.names, given)
                if name and self.rank == 0:
                    values.copy_(found[name].detach())
                self._write(p, MASTER, values)
        for unit in self.units if not self.has_masters else ():
            unit.gather()
            for group in unit.groups:
                for p in group.parameters:
                    name = _last_of(p.names, given)
                    if name and self.rank == 0:
                        p.full.copy_(found[name].detach())
                self.call("muster_shard_store", group.index, 0)
            unit.release()
        for name in given:
            if isinstance(skeleton[name], torch.nn.Parameter):
                continue
            with torch.no_grad():
                if self.rank == 0:
                    skeleton[name].copy_(found[name])
                self._broadcast(skeleton[name])
        for name, value in extra.items():
            self.module.get_submodule(name[: -len(_EXTRA_STATE_KEY_SUFFIX)].rstrip(".")).set_extra_state(value)
        return _IncompatibleKeys(missing, unexpected)

    def _refuse_state_dict(self, *unused):
        if not self.reading:
            raise RuntimeError("the module is sharded: sharded.state_dict() has its full parameters (on every rank, together)")

    def _refuse_load(self, *unused):
        raise RuntimeError("the module is sharded: sharded.load_state_dict() loads rank 0's state (on every rank, together)")

    # ---- files ----

    def _buffers(self):
        """(name, tensor) of the buffers that belong into a file."""
        return [(name, value) for name, value in self._skeleton().items() if torch.is_tensor(value) and not isinstance(value, torch.nn.Parameter)]

    def save(self, path):
        """Rank 0 writes all parameters, and its buffers, as one safetensors file, one unit in memory at a time; without what
        torch.compile has put into their names."""
        buffers = self._buffers()
        tensors = [(plain(p.names[0]), p.dtype, p.shape) for p in self.parameters()]
        tensors += [(plain(name), value.dtype, value.shape) for name, value in buffers]

        def values():
            for _, tensor in self.stream():
                yield tensor
            for _, value in buffers:
                yield value

        self._on_rank_0(lambda: SafetensorsWriter(path, tensors), values())

    def save_state(self, path):
        """Rank 0 writes the state that a later run needs: parameters (with 16 bits their masters), moments, how often
        each parameter was updated, and buffers. Between steps; one parameter in memory at a time. Random generators and the
        position in the data are the program's."""
        counts = {p.names[0]: str(self.library.muster_shard_updates(self.handle(), p.index, -1)) for p in self.parameters()}
        buffers = self._buffers()
        tensors = [(name, p.dtype, p.shape) for name, p, _ in self._state()]
        tensors += [(f"buffer/{name}", value.dtype, value.shape) for name, value in buffers]

        def values():
            for _, p, kind in self._state():
                yield self._read(p, kind)
            for _, value in buffers:
                yield value

        self._on_rank_0(lambda: SafetensorsWriter(path, tensors, counts), values())

    def load_state(self, path):
        """Goes on where save_state was; rank 0 reads. The world may have another size."""
        file, problem, buffers = None, None, self._buffers()
        if self.rank == 0:
            try:
                file = SafetensorsReader(path)
                wanted = {name: (p.dtype, p.shape) for name, p, _ in self._state()}
                if any(name.startswith("buffer/") for name in file.header):  # those before 0.2 have none
                    wanted.update((f"buffer/{name}", (value.dtype, value.shape)) for name, value in buffers)
                else:
                    buffers = []
                file.check(wanted, [p.names[0] for p in self.parameters()])
            except (OSError, ValueError) as error:
                problem = error
        self._raise_together(problem)
        counts = self._from_rank_0([int(file.metadata[p.names[0]]) for p in self.parameters()] if file else None)
        for p, count in zip(self.parameters(), counts):
            self.library.muster_shard_updates(self.handle(), p.index, count)
        for name, p, kind in self._state():
            self._write(p, kind, file.read(name) if file else torch.empty(p.shape, dtype=p.dtype))
        if self._from_rank_0(bool(buffers)):
            for name, value in buffers:
                if file:
                    value.copy_(file.read(f"buffer/{name}"))
                self._broadcast(value)

    def _state(self):
        """(name in a file, parameter, kind) of all that training changes."""
        for unit in self.units:
            for group in unit.groups:
                for p in group.parameters:
                    for kind in (MASTER, *(MOMENTS[: self.moments] if not group.frozen else ())):
                        yield f"{('parameter', None, 'moment1', 'moment2')[kind]}/{p.names[0]}", p, kind

    def _on_rank_0(self, make, values):
        """Rank 0 writes the values that all ranks produce together; its failure is a failure of all ranks."""
        writer, problem = None, None
        try:
            writer = make() if self.rank == 0 else None
        except (OSError, ValueError) as error:
            problem = error
        for value in values:
            try:
                if writer and not problem:
                    writer.write(value)
            except OSError as error:
                problem = error
        try:
            if writer:
                writer.close(problem is None)
        except OSError as error:
            problem = error
        self._raise_together(problem)

    # ---- what rank 0 knows ----

    def _broadcast(self, tensor):
        """A tensor of every rank becomes rank 0's."""
        whole = tensor.detach().contiguous()
        self.library.call("muster_world_broadcast", self.world, whole.data_ptr(), whole.numel() * whole.itemsize, 0)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)

    def _from_rank_0(self, value):
        """What rank 0 has, on every rank; tensors in it are copied."""
        data = io.BytesIO()
        if self.rank == 0:
            torch.save(value, data, pickle_module=pickle)
        size = (ctypes.c_int64 * 1)(len(data.getvalue()))
        self.library.call("muster_world_broadcast", self.world, ctypes.addressof(size), 8, 0)
        buffer = (ctypes.c_char * size[0]).from_buffer_copy(data.getvalue() or bytes(size[0]))
        self.library.call("muster_world_broadcast", self.world, ctypes.addressof(buffer), size[0], 0)
        return value if self.rank == 0 else torch.load(io.BytesIO(buffer.raw), weights_only=False)  # from our own rank 0

    def _raise_together(self, problem):
        """Raises rank 0's exception on every rank, on other ranks an exception of its kind with its text."""
        flag = (ctypes.c_double * 1)(float(problem is not None))
        self.library.call("muster_world_reduce", self.world, flag, 1, 1)
        if not flag[0]:
            return
        kind, text = self._from_rank_0((type(problem) if type(problem) in (ValueError, RuntimeError) else OSError, str(problem)))
        raise problem or kind(f"rank 0: {text}")


def _sum(tensor):
    """The sum of the bits, so that NaN equals NaN."""
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]).sum()


def _last_of(names, given):
    """The last of tied parameters counts, as in torch."""
    return next((name for name in reversed(names) if name in given), None)


def _match(model, skeleton, state, strict):
    """(values by the module's names, missing, unexpected, the error's text or None)."""
    names = {plain(name): name for name in skeleton}
    wrapped = bool(state) and all(str(key).startswith("module.") for key in state) and not any(n.startswith("module.") for n in names)
    found, unexpected, problems = {}, [], []
    for key, value in state.items():
        name = skeleton.get(key) is not None and key or names.get(plain(key[len("module.") :] if wrapped else key))
        if name is None:
            unexpected.append(key)
        else:
            found[name] = value
    missing = [name for name in skeleton if name not in found]
    for name, value in list(found.items()):
        here = skeleton[name]
        if name.endswith(_EXTRA_STATE_KEY_SUFFIX):
            continue
        if not torch.is_tensor(value):
            problems.append(f"{name}: expected a tensor, but the state has a {type(value).__name__}")
            continue
        if here.dim() == 0 and value.dim() == 1 and value.numel() == 1:
            value = found[name] = value[0]
        if value.shape != here.shape:
            problems.append(f"size mismatch for {name}: copying a param with shape {value.shape} from checkpoint, the shape in current model is "
                            f"{here.shape}.")
        elif value.is_complex() and not here.is_complex():
            problems.append(f"{name}: expected {here.dtype}, but the state has {value.dtype}")
    if strict and unexpected:
        problems.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{key}"' for key in unexpected) + ".")
    if strict and missing:
        problems.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{key}"' for key in missing) + ".")
    text = f"Error(s) in loading state_dict for {model}:\n\t" + "\n\t".join(problems) if problems else None
    return found, missing, unexpected, text
