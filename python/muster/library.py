"""libmuster by ctypes: its structs, its functions, its errors as exceptions. No package is needed.

The library is MUSTER_LIBRARY, else the library installed next to this package, else a build tree's, else the system's."""

import ctypes
import os
import pathlib
import warnings
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_void_p


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("text", c_char * 480)]


class MusterError(RuntimeError):
    """A failed call: `code` is a value of enum muster_error_code."""

    def __init__(self, error):
        super().__init__(error.text.decode(errors="replace"))
        self.code = error.code


class ShardOptions(ctypes.Structure):
    _fields_ = (
        [("size", c_uint32)]
        + [(name, c_int32) for name in ("dtype", "optimizer", "momentum", "prefetch", "threads", "gradient_slots", "param_dtype",
                                   "reduce_dtype", "replicas")]
        + [("timeout_ms", c_int64)]
    )


class ShardStep(ctypes.Structure):
    _fields_ = (
        [("size", c_uint32), ("norm", c_int32), ("learning_rate", c_double * 8), ("weight_decay", c_double * 8)]
        + [(name, c_double) for name in ("beta1", "beta2", "epsilon", "momentum", "dampening")]
        + [("nesterov", c_int32), ("reserved", c_int32), ("clip_norm", c_double)]
    )


class ShardResult(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("skipped", c_int32), ("grad_norm", c_double)]


class ShardStats(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("slots", c_int32)] + [
        (name, c_int64)
        for name in ("shard_bytes", "slot_bytes", "grad_bytes", "gathers", "prefetched", "waited_ns", "comm_ns")
    ]


# name: (result, arguments); the struct muster_error at the end of functions that can fail is added by `call`
FUNCTIONS = {
    "muster_version": (c_char_p, []),
    "muster_fit_processor": (c_char_p, []),
    "muster_processor_note": (c_char_p, []),
    "muster_world_open": (c_void_p, [c_void_p, POINTER(Error)]),
    "muster_world_close": (None, [POINTER(c_void_p)]),
    "muster_world_rank": (c_int, [c_void_p]),
    "muster_world_size": (c_int, [c_void_p]),
    "muster_world_barrier": (c_int, [c_void_p, POINTER(Error)]),
    "muster_world_reduce": (c_int, [c_void_p, POINTER(c_double), c_int64, c_int32, POINTER(Error)]),
    "muster_world_split": (c_void_p, [c_void_p, c_int32, c_int32, POINTER(Error)]),
    "muster_world_broadcast": (c_int, [c_void_p, c_void_p, c_int64, c_int32, POINTER(Error)]),
    "muster_shard_defaults": (None, [POINTER(ShardOptions)]),
    "muster_shard_create": (c_void_p, [c_void_p, POINTER(ShardOptions), POINTER(Error)]),
    "muster_shard_destroy": (None, [c_void_p]),
    "muster_shard_group": (c_int, [c_void_p, c_char_p, c_int, POINTER(Error)]),
    "muster_shard_parameter": (c_int, [c_void_p, c_char_p, c_int64, c_int, POINTER(Error)]),
    "muster_shard_ready": (c_int, [c_void_p, POINTER(Error)]),
    "muster_shard_address": (c_void_p, [c_void_p, c_int]),
    "muster_shard_guard": (c_int, [c_void_p, c_void_p, c_int, POINTER(Error)]),
    "muster_shard_touched": (c_int, [c_void_p]),
    "muster_shard_begin": (c_int, [c_void_p, c_int, POINTER(Error)]),
    "muster_shard_gather": (c_int, [c_void_p, c_int, POINTER(Error)]),
    "muster_shard_release": (c_int, [c_void_p, c_int, POINTER(Error)]),
    "muster_shard_store": (c_int, [c_void_p, c_int, c_int, POINTER(Error)]),
    "muster_shard_gradient": (c_void_p, [c_void_p, c_int, POINTER(Error)]),
    "muster_shard_reduce": (c_int, [c_void_p, c_int, POINTER(c_void_p), POINTER(Error)]),
    "muster_shard_discard": (c_int, [c_void_p, POINTER(Error)]),
    "muster_shard_step_defaults": (None, [POINTER(ShardStep)]),
    "muster_shard_step": (c_int, [c_void_p, POINTER(ShardStep), POINTER(ShardResult), POINTER(Error)]),
    "muster_shard_grad_norm": (c_int, [c_void_p, POINTER(c_double), POINTER(Error)]),
    "muster_shard_part": (c_void_p, [c_void_p, c_int, c_int, POINTER(c_int64), POINTER(c_int64)]),
    "muster_shard_read": (c_int, [c_void_p, c_int, c_int, c_void_p, POINTER(Error)]),
    "muster_shard_write": (c_int, [c_void_p, c_int, c_int, c_void_p, c_int, POINTER(Error)]),
    "muster_shard_updates": (c_int64, [c_void_p, c_int, c_int64]),
    "muster_shard_statistics": (c_int, [c_void_p, POINTER(ShardStats), POINTER(Error)]),
}


def _candidates():
    here = pathlib.Path(__file__).resolve()
    if "MUSTER_LIBRARY" in os.environ:
        yield os.environ["MUSTER_LIBRARY"]
    for folder in list(here.parents)[:5]:  # PREFIX/lib/muster/python/muster/library.py; the wheel's muster/library.py; SOURCE/python/muster/library.py
        for name in ("libmuster.so", "libs/libmuster.so", "build/lib/libmuster.so"):
            if (folder / name).is_file():
                yield str(folder / name)
    yield "libmuster.so.0"


class Library:
    def __init__(self):
        self._library = ctypes.CDLL(next(_candidates()))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def call(self, name, *arguments):
        """Calls a function that can fail; -1 and NULL become MusterError."""
        error = Error()
        result = getattr(self, name)(*arguments, ctypes.byref(error))
        if result is None or (FUNCTIONS[name][0] is c_int and result < 0):
            raise MusterError(error)
        return result


_loaded = []


def load():
    if not _loaded:
        _loaded.append(Library())
        note = _loaded[0].muster_processor_note()
        if note:
            warnings.warn(note.decode(), RuntimeWarning, stacklevel=3)
    return _loaded[0]
