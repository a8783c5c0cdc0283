"""muster in Python: `muster.log` and `muster.beat` (a script's reports to `muster run`), `muster.Regroup` (ranks that stay when others are
lost), and over libmuster by ctypes `muster.library` (the C functions) and `muster.torch` (PyTorch modules, sharded)."""

from muster.progress import beat, log
from muster.regroup import Regroup

__all__ = ["Regroup", "beat", "log"]
