"""muster in Python, over libmuster by ctypes: `muster.library` (the C functions), `muster.torch` (PyTorch modules, sharded)."""
