"""The model of own_model.c from Python, by ctypes alone: no package, no mirrored structures.

    muster run --standalone --nproc_per_node=2 own_model.py own_model.safetensors

torchrun, mpirun or srun start it as well. MUSTER_LIBRARY names another library than that of muster in PATH."""
import ctypes
import os
import shutil
import sys
from ctypes import byref, c_char_p, c_double, c_int32, c_int64, c_void_p

VOCABULARY, WIDTH, POSITIONS, HEADS, SAMPLES, STEPS = 256, 64, 32, 4, 8, 30
ZERO, ONE, NORMAL, FROZEN, CAUSAL = 0, 1, 2, 1, 8
NEAR = os.path.normpath(os.path.realpath(shutil.which("muster") or "") + "/../../lib/libmuster.so.0")  # PATH has its program
muster = ctypes.CDLL(os.environ.get("MUSTER_LIBRARY") or (NEAR if os.path.exists(NEAR) else "libmuster.so.0"))
error = ctypes.create_string_buffer(512)
for name, result in {"muster_world_open": c_void_p, "muster_model_new": c_void_p, "muster_trainer_open": c_void_p,
                     "muster_error_text": c_char_p}.items():
    getattr(muster, name).restype = result


def must(ok):
    if not ok:
        sys.exit(f"own_model.py: {muster.muster_error_text(error).decode()}")
    return ok


def figure(trainer, name, value=c_double()):
    return must(muster.muster_trainer_figure(trainer, name, byref(value), error) == 0) and value.value


def linear(model, x, width, name):
    return muster.muster_linear(model, x, c_int64(width), name, c_double(0.02), 0)


def block(model, name, x):
    def norm(x, name):
        return muster.muster_layer_norm(model, x, name, c_double(1e-5), 0)

    muster.muster_layer(model, name)  # the unit that is gathered, computed and freed
    h = muster.muster_attention_packed(model, linear(model, norm(x, b"ln_1"), 3 * WIDTH, b"qkv"), HEADS, HEADS, CAUSAL)
    x = muster.muster_add(model, x, linear(model, h, WIDTH, b"out"))
    h = muster.muster_activation(model, linear(model, norm(x, b"ln_2"), 4 * WIDTH, b"up"), b"gelu")
    return muster.muster_add(model, x, linear(model, h, WIDTH, b"down"))


def own_model():
    model = c_void_p(must(muster.muster_model_new(b"own", error)))
    tokens, targets = (muster.muster_model_input(model, name, 1, c_int64(1)) for name in (b"tokens", b"targets"))
    muster.muster_layer(model, b"embedding")
    table, place = (
        muster.muster_parameter(model, name, c_int64(rows), c_int64(WIDTH), NORMAL, c_double(0.02), flags)
        for name, rows, flags in ((b"table", VOCABULARY, 0), (b"positions", POSITIONS, FROZEN)))
    x = block(model, b"block.1", block(model, b"block.0", muster.muster_embedding(model, tokens, table, place)))
    muster.muster_layer(model, b"head")
    muster.muster_cross_entropy(model, x, table, targets)  # the table again: tied
    must(muster.muster_model_check(model, error) == 0)
    return model


def samples(first, count):
    """Arrays of the samples from number `first`: a chain in which a token follows from the one before."""
    tokens, targets = [], []
    for sample in range(first, first + count):
        token = sample * 7 % VOCABULARY
        for _ in range(POSITIONS):
            tokens.append(token)
            token = (token * 5 + 3) % VOCABULARY
            targets.append(token)
    arrays = [(c_int32 * len(values))(*values) for values in (tokens, targets)]
    return (c_void_p * 2)(*(ctypes.addressof(a) for a in arrays)), arrays  # the caller keeps the arrays


def main():
    settings = [f"training.{setting}".encode() for setting in (
        "strategy=FULL_SHARD", "optimizer=AdamW", "schedule=constant", "learning_rate=3e-3", "warmup_steps=0",
        "micro_batch=1", "global_batch=8", "sequence_length=32")]
    world = c_void_p(must(muster.muster_world_open(None, error)))
    model, rank = own_model(), muster.muster_world_rank(world)
    trainer = c_void_p(must(muster.muster_trainer_open(world, model, (c_char_p * 9)(*settings, None), error)))
    mine = int(figure(trainer, b"samples"))  # in each step
    for step in range(STEPS):
        arrays, _kept = samples(step * SAMPLES + rank * mine, mine)
        must(muster.muster_trainer_train(trainer, arrays, c_int64(mine), None, error) == 0)
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1} loss {figure(trainer, b'loss'):.6f}", flush=True)
    arrays, _kept = samples(1000 + rank, 1)
    sums = (c_double * 2)()  # sums over all ranks: losses, targets
    must(muster.muster_trainer_evaluate(trainer, arrays, c_int64(rank < 2), sums, error) == 0)
    if rank == 0:
        print(f"validation loss {sums[0] / sums[1]:.8f} of {sums[1]:.0f} targets", flush=True)
    path = (sys.argv[1:] or ["own_model.safetensors"])[0].encode()
    must(muster.muster_trainer_export(trainer, path, b"safetensors", error) == 0)
    muster.muster_trainer_close(byref(trainer))
    muster.muster_model_free(model)
    muster.muster_world_close(byref(world))


main()
