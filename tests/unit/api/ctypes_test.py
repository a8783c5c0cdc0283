"""libmuster from Python by ctypes, without any package or mirrored struct: alone, and as two ranks under `muster run`.

    ctypes_test.py             the test
    ctypes_test.py --worker F  one rank; rank 0 writes its losses and the name of its file to F

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


def load():
    library = ctypes.CDLL(str(BUILD / "lib" / "libmuster.so"))
    for name in ("muster_world_open", "muster_world_split", "muster_model_open", "muster_trainer_open"):
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("muster_version", "muster_error_text"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def Error():
    return ctypes.create_string_buffer(512)


def must(ok, error):
    if not ok:
        raise RuntimeError(load().muster_error_text(error).decode())


def figure(muster, trainer, name, error):
    value = ctypes.c_double()
    must(muster.muster_trainer_figure(trainer, name, ctypes.byref(value), error) == 0, error)
    return value.value


def texts(**settings):
    """Settings as the array of texts that the library reads."""
    lines = [f"{key.replace('__', '.')}={value}".encode() for key, value in settings.items()]
    return (ctypes.c_char_p * (len(lines) + 1))(*lines, None)


def arrays(*values):
    return (ctypes.c_void_p * len(values))(*(ctypes.cast(v, ctypes.c_void_p) for v in values))


def gpt2(muster, layers, channels, heads, error):
    model = muster.muster_model_open(b"gpt2", texts(
        model__layers=layers, model__channels=channels, model__heads=heads, model__vocabulary=VOCABULARY, model__positions=POSITIONS
    ), error)
    must(model, error)
    return ctypes.c_void_p(model)


def open_trainer(muster, world, model, rows, error):
    trainer = muster.muster_trainer_open(world, model, texts(
        training__micro_batch=rows, training__global_batch=SEQUENCES, training__sequence_length=POSITIONS, training__threads=1,
        training__learning_rate=1e-2, training__schedule="constant", training__warmup_steps=0,
    ), error)
    must(trainer, error)
    return ctypes.c_void_p(trainer)


def batch(sample):
    """One sequence of a chain in which the next token is a function of this one."""
    tokens = [(sample * 7) % VOCABULARY]
    while len(tokens) <= POSITIONS:
        tokens.append((tokens[-1] * 5 + 3) % VOCABULARY)
    return tokens[:-1], tokens[1:]


def worker(out):
    muster, error = load(), Error()
    world = ctypes.c_void_p(muster.muster_world_open(None, error))
    must(world.value, error)
    rank, size = muster.muster_world_rank(world), muster.muster_world_size(world)
    model = gpt2(muster, 2, 16, 2, error)
    rows = SEQUENCES // size
    trainer = open_trainer(muster, world, model, rows, error)
    losses = []
    for number in range(STEPS):
        first = number * SEQUENCES + rank * rows
        pairs = [batch(first + row) for row in range(rows)]
        flat = [(ctypes.c_int32 * (rows * POSITIONS))(*(t for pair in pairs for t in pair[side])) for side in (0, 1)]
        stop = number == STEPS - 1 and rank == size - 1  # one of them asks, and all see it
        must(muster.muster_trainer_set(trainer, b"stop", ctypes.c_double(stop), error) == 0, error)
        must(muster.muster_trainer_train(trainer, arrays(*flat), ctypes.c_int64(rows), None, error) == 0, error)
        losses.append(figure(muster, trainer, b"loss", error))
        stopped = figure(muster, trainer, b"stop", error)
        assert bool(stopped) == (number == STEPS - 1), f"step {number}: stop {stopped}"
    values = (ctypes.c_double * 2)(rank + 1, losses[-1])
    must(muster.muster_world_reduce(world, values, ctypes.c_int64(2), 0, error) == 0, error)
    assert values[0] == size * (size + 1) / 2 and values[1] == size * losses[-1], list(values)
    part = ctypes.c_void_p(muster.muster_world_split(world, rank % 2, 0, error))
    must(part.value, error)
    assert muster.muster_world_size(part) == (size + 1 - rank % 2) // 2
    assert muster.muster_world_rank(part) == rank // 2
    muster.muster_world_close(ctypes.byref(part))
    name = ctypes.create_string_buffer(f"rank {rank}".encode(), 16)
    must(muster.muster_world_broadcast(world, name, ctypes.c_int64(16), size - 1, error) == 0, error)
    assert name.value == f"rank {size - 1}".encode(), name.value
    saved = out + ".safetensors"
    must(muster.muster_trainer_export(trainer, saved.encode(), b"safetensors", error) == 0, error)
    must(muster.muster_world_barrier(world, error) == 0, error)
    muster.muster_trainer_close(ctypes.byref(trainer))
    muster.muster_model_free(model)
    muster.muster_world_close(ctypes.byref(world))
    assert world.value is None and trainer.value is None
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
