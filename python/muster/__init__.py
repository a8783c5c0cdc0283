"""muster in Python: `muster.log` and `muster.beat` (a script's reports to `muster run`), and over libmuster by ctypes `muster.library`
(the C functions) and `muster.torch` (PyTorch modules, sharded)."""

from muster.progress import beat, log

__all__ = ["beat", "log"]
