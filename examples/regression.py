"""The model of regression.c from Python, by ctypes alone: no package, no mirrored structures.

    muster run --standalone --nproc_per_node=2 regression.py regression.safetensors

An array of NumPy is given by its address: array.ctypes.data. MUSTER_LIBRARY names another library than that of muster in PATH."""
import ctypes
import os
import shutil
import sys
from ctypes import byref, c_char_p, c_double, c_float, c_int64, c_void_p

FEATURES, WIDTH, SAMPLES, STEPS = 3, 64, 32, 300
F32 = 2  # enum muster_dtype
NEAR = os.path.normpath(os.path.realpath(shutil.which("muster") or "") + "/../../lib/libmuster.so.0")  # PATH has its program
muster = ctypes.CDLL(os.environ.get("MUSTER_LIBRARY") or (NEAR if os.path.exists(NEAR) else "libmuster.so.0"))
error = ctypes.create_string_buffer(512)
for name, result in {"muster_world_open": c_void_p, "muster_model_new": c_void_p, "muster_trainer_open": c_void_p,
                     "muster_error_text": c_char_p}.items():
    getattr(muster, name).restype = result


def must(ok):
    if not ok:
        sys.exit(f"regression.py: {muster.muster_error_text(error).decode()}")
    return ok


def figure(trainer, name):
    """A member of struct muster_trainer_state."""
    value = c_double()
    must(muster.muster_trainer_figure(trainer, name, byref(value), error) == 0)
    return value.value


def linear(model, x, width, std):
    return muster.muster_linear(model, x, c_int64(width), b"fc", c_double(std), 0)


def own_model():
    model = c_void_p(must(muster.muster_model_new(b"regression", error)))
    features = muster.muster_model_input(model, b"features", F32, c_int64(FEATURES))
    wanted = muster.muster_model_input(model, b"wanted", F32, c_int64(1))
    muster.muster_layer(model, b"up")
    x = muster.muster_activation(model, linear(model, muster.muster_values(model, features), WIDTH, 0.5), b"tanh")
    muster.muster_layer(model, b"middle")
    x = muster.muster_activation(model, linear(model, x, WIDTH, 0.15), b"tanh")
    muster.muster_layer(model, b"down")
    muster.muster_squared_error(model, linear(model, x, 1, 0.1), wanted)  # NaN there: does not count
    must(muster.muster_model_check(model, error) == 0)
    return model


def samples(first, count):
    """Arrays of the samples from number `first` on: points of a grid in -1..1, and x y + z^2 - 0.5 of each."""
    points = [[sample * (17 + 6 * k) % 41 / 20 - 1 for k in range(FEATURES)] for sample in range(first, first + count)]
    values = [[c for point in points for c in point], [x * y + z * z - 0.5 for x, y, z in points]]
    arrays = [(c_float * len(v))(*v) for v in values]
    return (c_void_p * 2)(*(ctypes.addressof(a) for a in arrays)), arrays  # the caller keeps the arrays


def main():
    settings = [f"training.{setting}".encode() for setting in (
        "strategy=FULL_SHARD", "schedule=constant", "learning_rate=5e-3", "warmup_steps=0", "sequence_length=1", "micro_batch=16",
        "global_batch=32", "weight_decay=0")]
    world = c_void_p(must(muster.muster_world_open(None, error)))
    model, rank = own_model(), muster.muster_world_rank(world)
    trainer = c_void_p(must(muster.muster_trainer_open(world, model, (c_char_p * 9)(*settings, None), error)))
    mine = int(figure(trainer, b"samples"))  # in each step
    for step in range(STEPS):
        arrays, _kept = samples(step * SAMPLES + rank * mine, mine)
        must(muster.muster_trainer_train(trainer, arrays, c_int64(mine), None, error) == 0)
        if rank == 0 and step % 100 == 99:
            print(f"step {step + 1} loss {figure(trainer, b'loss'):.6f}", flush=True)
    arrays, _kept = samples(100000 + rank * 8, 8)
    sums = (c_double * 2)()  # sums over all ranks: squared errors, targets
    must(muster.muster_trainer_evaluate(trainer, arrays, c_int64(8 if rank < 2 else 0), sums, error) == 0)
    if rank == 0:
        print(f"validation loss {sums[0] / sums[1]:.8f} of {sums[1]:.0f} targets", flush=True)
    path = sys.argv[1] if len(sys.argv) > 1 else "regression.safetensors"
    must(muster.muster_trainer_export(trainer, path.encode(), b"safetensors", error) == 0)
    muster.muster_trainer_close(byref(trainer))
    muster.muster_model_free(model)
    muster.muster_world_close(byref(world))


main()
