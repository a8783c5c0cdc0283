"""A script's reports to `muster run`: steps as heartbeats, and figures for the job's page, `muster top` and the metrics.

    import muster                                  # after the other imports: the page shows how long they took
    muster.log(step=step, loss=loss, tokens_per_s=rate, my_accuracy=0.9)

Without `muster run` nothing happens. One `write` a call, which never blocks; a step that the agent has no room for is dropped. Figures go out
five times a second at most; a tensor is read (`float`, which waits for its device) only when they do. Format: launcher/docs/heartbeat.md."""

import math
import os
import re
import stat
import time

_EVERY_S = 0.2
_LINE = 500  # bytes; the agent drops a longer one than 512
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,23}\Z")
_latest = {}
_next = 0.0


def _descriptor():
    """The pipe of this worker; None where there is none, or its number is another file's by now."""
    try:
        fd = int(os.environ["MUSTER_HEARTBEAT_FD"])
        return fd if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
    except (KeyError, ValueError, OSError):
        return None


def _write(text):
    fd = _descriptor()
    if fd is None:
        return
    try:
        os.write(fd, text.encode())
    except OSError:
        pass  # the agent does not read now, or has ended: training goes on


def beat(step=None):
    """A heartbeat, with the step if there is one. The first arms hang detection (`--hang-timeout`); -1 disarms it until the next."""
    _write(f"{int(step)}\n" if step is not None else "beat\n")


def log(step=None, **values):
    """A heartbeat of the step, and figures by name. Known to the page and the metrics are loss, grad_norm, learning_rate, tokens_per_s,
    mfu, step_ms, comm_ms, exposed_ms, data_wait_ms, total_steps (of the whole run), gpu_utilization (0 to 1), gpu_memory and
    gpu_memory_total (bytes); up to eight others are shown under their names. A name keeps
    its last value."""
    global _next
    for name in values:
        if not _NAME.match(name):
            raise ValueError(f"muster.log: a figure's name has 1 to 23 letters, digits or _ . / -, not {name!r}")
    text = f"{int(step)}\n" if step is not None else ""
    now = time.monotonic()
    if values and now >= _next:
        _next = now + _EVERY_S
        _latest.update({name: float(value) for name, value in values.items()})
        line = "figures/1"
        for name, value in _latest.items():
            pair = f" {name}={value:.9g}"
            if math.isfinite(value) and len(line) + len(pair) < _LINE:
                line += pair
        text += line + "\n"
    if text:
        _write(text)


_write("mark/1 imported\n")
