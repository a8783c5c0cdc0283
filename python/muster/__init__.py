"""muster in Python: `muster.log` and `muster.beat` (what a script reports to `muster run`), and over libmuster by ctypes `muster.library`
(the C functions) and `muster.torch` (PyTorch modules, sharded)."""

from muster.progress import beat, log

__all__ = ["beat", "log"]
