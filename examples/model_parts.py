"""Two models in two parts each, as pipelines: `net`, whose layers were placed on two devices by hand, and `stages`, as torchgpipe's
GPipe(model, chunks=8, checkpoint='except_last') runs them.

    muster run --standalone --nproc_per_node=2 model_parts.py net net.safetensors
    muster run --standalone --nproc_per_node=4 model_parts.py stages stages.safetensors start.safetensors

With more ranks each part has several of them, with other samples. The third file gets the parameters before the first step. Other words are
settings of muster-train: training.strategy=FULL_SHARD. MUSTER_LIBRARY names another library than that of muster in PATH."""
import ctypes
import os
import shutil
import sys
from ctypes import byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p

I32, F32 = 1, 2  # enum muster_dtype
STEPS = 20
NEAR = os.path.normpath(os.path.realpath(shutil.which("muster") or "") + "/../../lib/libmuster.so.0")  # PATH has its program
muster = ctypes.CDLL(os.environ.get("MUSTER_LIBRARY") or (NEAR if os.path.exists(NEAR) else "libmuster.so.0"))
error = ctypes.create_string_buffer(512)
for name, result in {"muster_world_open": c_void_p, "muster_model_new": c_void_p, "muster_trainer_open": c_void_p,
                     "muster_error_text": c_char_p, "muster_trainer_row": c_int64}.items():
    getattr(muster, name).restype = result


def must(ok):
    if not ok:
        sys.exit(f"model_parts.py: {muster.muster_error_text(error).decode()}")
    return ok


def figure(trainer, name):
    value = c_double()
    must(muster.muster_trainer_figure(trainer, name, byref(value), error) == 0)
    return value.value


def number(sample, i):
    """Between -1 and 1, from whole numbers alone."""
    return (sample * 7919 + i * 104729 + sample * i % 1013) % 1009 / 504.5 - 1


class Net:
    """Linear(1000, 4000), ReLU on the first device; Linear(4000, 4000), ReLU, Linear(4000, 1000) on the second."""

    settings = ["training.learning_rate=0.05", "training.micro_batch=4", "training.global_batch=16"]
    samples = 16

    def model(self):
        model = c_void_p(must(muster.muster_model_new(b"net", error)))
        given, wanted = (muster.muster_model_input(model, name, F32, c_int64(1000)) for name in (b"given", b"wanted"))

        def linear(x, width, fan_in, name):
            return muster.muster_linear(model, x, c_int64(width), name, c_double((3 * fan_in) ** -0.5), 0)

        muster.muster_layer(model, b"part1")
        x = muster.muster_relu(model, linear(muster.muster_values(model, given), 4000, 1000, b"layer1"))
        muster.muster_layer(model, b"part2")
        x = muster.muster_relu(model, linear(x, 4000, 4000, b"layer2"))
        muster.muster_squared_error(model, linear(x, 1000, 4000, b"layer3"), wanted)
        return model

    def arrays(self, rows):
        given = [number(row, i) for row in rows for i in range(1000)]
        wanted = [number(row, i + 5000) / 4 for row in rows for i in range(1000)]
        return (c_float * len(given))(*given), (c_float * len(wanted))(*wanted)


class Stages:
    """Conv2d(3, 64), ReLU, MaxPool2d, Conv2d(64, 128), ReLU; then MaxPool2d, AdaptiveAvgPool2d(1), Linear(128, 10). A step is 8 micro-batches
    on two ranks, and all but the last one keep no activations."""

    settings = ["mesh.schedule=gpipe", "training.recompute=except_last", "training.learning_rate=0.05", "training.micro_batch=2",
                "training.global_batch=16"]
    samples, side = 16, 16

    def model(self):
        model = c_void_p(must(muster.muster_model_new(b"stages", error)))
        shape = (c_int32 * 3)(3, self.side, self.side)
        pictures = muster.muster_model_input(model, b"pictures", F32, c_int64(3 * self.side**2))
        labels = muster.muster_model_input(model, b"labels", I32, c_int64(1))
        muster.muster_layer(model, b"stage1")
        x = muster.muster_conv2d(model, muster.muster_values(model, pictures), shape, 64, 3, 1, 1, b"conv1", 0)
        x = muster.muster_max_pool2d(model, muster.muster_relu(model, x), shape, 2, 2, 0)
        x = muster.muster_relu(model, muster.muster_conv2d(model, x, shape, 128, 3, 1, 1, b"conv2", 0))
        muster.muster_layer(model, b"stage2")
        x = muster.muster_max_pool2d(model, x, shape, 2, 2, 0)
        x = muster.muster_avg_pool2d(model, x, shape, 1, 1)
        muster.muster_classes(model, x, c_int64(10), b"fc", labels)
        return model

    def arrays(self, rows):
        pictures = [number(row, i) + (i // self.side**2 == row % 3) for row in rows for i in range(3 * self.side**2)]
        return (c_float * len(pictures))(*pictures), (c_int32 * len(rows))(*(row % 10 for row in rows))


def main():
    words = [word for word in sys.argv[1:] if "=" not in word]
    chosen = {"net": Net, "stages": Stages}[words[0]]()
    settings = ["mesh.pipeline=2", "training.strategy=NO_SHARD", "training.optimizer=SGD", "training.schedule=constant", "training.warmup_steps=0",
                "training.weight_decay=0", "training.clip_norm=0", "training.sequence_length=1", *chosen.settings]
    settings += [word for word in sys.argv[1:] if "=" in word]  # the later one counts
    texts = [setting.encode() for setting in settings]
    world = c_void_p(must(muster.muster_world_open(None, error)))
    model, rank = chosen.model(), muster.muster_world_rank(world)
    must(muster.muster_model_check(model, error) == 0)
    trainer = c_void_p(must(muster.muster_trainer_open(world, model, (c_char_p * (len(texts) + 1))(*texts, None), error)))
    if len(words) > 2:
        must(muster.muster_trainer_export(trainer, words[2].encode(), b"safetensors", error) == 0)
    mine = int(figure(trainer, b"samples"))  # in each step
    for step in range(STEPS):
        rows = [step * chosen.samples + muster.muster_trainer_row(trainer, c_int64(i)) for i in range(mine)]
        kept = chosen.arrays(rows)
        arrays = (c_void_p * 2)(*(ctypes.addressof(a) for a in kept))
        must(muster.muster_trainer_train(trainer, arrays, c_int64(mine), None, error) == 0)
        if rank == 0:
            print(f"step {step + 1} loss {figure(trainer, b'loss'):.9f}", flush=True)
    if len(words) > 1:
        must(muster.muster_trainer_export(trainer, words[1].encode(), b"safetensors", error) == 0)
    muster.muster_trainer_close(byref(trainer))
    muster.muster_model_free(model)
    muster.muster_world_close(byref(world))


main()
