"""libmuster from Python by ctypes, without any package: alone, and as two ranks under `muster run`.

    train_ctypes_test.py             the test
    train_ctypes_test.py --worker F  one rank; rank 0 writes its losses and the name of its file to F

MUSTER_BUILD names the build tree."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build")).resolve()
SEQUENCES, POSITIONS, VOCABULARY, STEPS = 4, 16, 24, 40


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 480)]


class Gpt(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32)] + [
        (name, ctypes.c_int32) for name in ("layers", "channels", "heads", "vocabulary", "positions")
    ]


class Training(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_uint32)]
        + [
            (name, ctypes.c_int32)
            for name in (
                "strategy", "replicas", "sequences", "positions", "micro_batches", "prefetch", "threads", "clip",
            )
        ]
        + [(name, ctypes.c_int64) for name in ("group_bytes", "memory_limit", "timeout_ms")]
        + [("seed", ctypes.c_uint64)]
    )


class Step(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_uint32), ("stop", ctypes.c_int32)]
        + [
            (name, ctypes.c_double)
            for name in ("learning_rate", "weight_decay", "beta1", "beta2", "epsilon", "clip_norm")
        ]
        + [("global_tokens", ctypes.c_int64)]
    )


class Result(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32), ("skipped", ctypes.c_int32), ("stop", ctypes.c_int32), ("reserved", ctypes.c_int32),
        ("loss", ctypes.c_double),
        ("grad_norm", ctypes.c_double), ("step_ns", ctypes.c_int64), ("comm_ns", ctypes.c_int64),
        ("exposed_ns", ctypes.c_int64),
    ]


def load():
    library = ctypes.CDLL(str(BUILD / "lib" / "libmuster.so"))
    for name in ("muster_world_open", "muster_trainer_create"):
        getattr(library, name).restype = ctypes.c_void_p
    library.muster_version.restype = ctypes.c_char_p
    return library


def must(ok, error):
    if not ok:
        raise RuntimeError(error.text.decode())


def batch(sample):
    """One sequence of a chain in which the next token is a function of this one."""
    tokens = [(sample * 7) % VOCABULARY]
    while len(tokens) <= POSITIONS:
        tokens.append((tokens[-1] * 5 + 3) % VOCABULARY)
    return tokens[:-1], tokens[1:]


def worker(out):
    muster, error = load(), Error()
    world = ctypes.c_void_p(muster.muster_world_open(None, ctypes.byref(error)))
    must(world.value, error)
    rank, size = muster.muster_world_rank(world), muster.muster_world_size(world)
    model = Gpt(ctypes.sizeof(Gpt), 2, 16, 2, VOCABULARY, POSITIONS)
    training, step = Training(), Step()
    muster.muster_training_defaults(ctypes.byref(training), ctypes.byref(model))
    muster.muster_step_defaults(ctypes.byref(step))
    training.sequences, training.threads = SEQUENCES // size, 1
    step.learning_rate = 1e-2
    trainer = ctypes.c_void_p(
        muster.muster_trainer_create(world, ctypes.byref(model), ctypes.byref(training), ctypes.byref(error))
    )
    must(trainer.value, error)
    losses, rows = [], training.sequences
    for number in range(STEPS):
        first = number * SEQUENCES + rank * rows
        pairs = [batch(first + row) for row in range(rows)]
        flat = [(ctypes.c_int32 * (rows * POSITIONS))(*(t for pair in pairs for t in pair[side])) for side in (0, 1)]
        result = Result(ctypes.sizeof(Result))
        step.stop = number == STEPS - 1 and rank == size - 1  # one of them asks, and all hear it
        code = muster.muster_trainer_step(
            trainer, flat[0], flat[1], ctypes.byref(step), ctypes.byref(result), ctypes.byref(error)
        )
        must(code == 0, error)
        losses.append(result.loss)
        assert bool(result.stop) == (number == STEPS - 1), f"step {number}: stop {result.stop}"
    values = (ctypes.c_double * 2)(rank + 1, losses[-1])
    must(muster.muster_world_reduce(world, values, ctypes.c_int64(2), 0, ctypes.byref(error)) == 0, error)
    assert values[0] == size * (size + 1) / 2 and values[1] == size * losses[-1], list(values)
    name = ctypes.create_string_buffer(f"rank {rank}".encode(), 16)
    must(muster.muster_world_broadcast(world, name, ctypes.c_int64(16), size - 1, ctypes.byref(error)) == 0, error)
    assert name.value == f"rank {size - 1}".encode(), name.value
    saved = out + ".safetensors"
    must(muster.muster_trainer_save(trainer, saved.encode(), ctypes.byref(error)) == 0, error)
    must(muster.muster_world_barrier(world, ctypes.byref(error)) == 0, error)
    muster.muster_trainer_destroy(trainer)
    muster.muster_world_close(ctypes.byref(world))
    assert world.value is None
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps({"size": size, "losses": losses, "saved": saved}))


def tensors(path):
    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert 8 + length + max(t["data_offsets"][1] for n, t in header.items() if n != "__metadata__") == len(data)
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


def run(command, out):
    environment = {n: v for n, v in os.environ.items() if n not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    done = subprocess.run(
        [*command, __file__, "--worker", str(out)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{command} gave {done.returncode}: {done.stderr}"
    found = json.loads(out.read_text())
    shapes = tensors(found["saved"])
    assert shapes["h.1.attn.c_attn.weight"] == [16, 48] and len(shapes) == 28, shapes
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        alone = run([sys.executable], folder / "alone")
        assert alone["size"] == 1 and alone["losses"][-1] < 0.5 * alone["losses"][0], alone
        print(f"libmuster {load().muster_version().decode()}; alone: loss {alone['losses'][0]:.3f} -> {alone['losses'][-1]:.3f}")
        two = run([str(BUILD / "bin" / "muster"), "run", "--standalone", "--nproc_per_node=2"], folder / "two")
        assert two["size"] == 2
        worst = max(abs(a - b) / b for a, b in zip(two["losses"], alone["losses"]))
        print(f"two ranks, FULL_SHARD: the same losses within {worst:.1e}")
        assert worst < 1e-4, worst  # sums in another order, grown over the steps of a high learning rate


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
