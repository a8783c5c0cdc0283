"""300 steps with values of 16 bits on the device against float64: bf16 at most 1.5 times as far as autocast, fp16 a third as far, with every strategy.

    MUSTER_BUILD=build python3 tests/gpu/train/precision_cuda_test.py [--steps N] [MODEL] [DTYPE] [STRATEGY]

Models are gpt2 and llama, dtypes bf16 and f16; each pair is a test of its own (gpu_precision_gpt2_bf16_full and so on).
GPT-2 and Llama in bf16 and in fp16 with dynamic loss scaling train on the module over the fakes, on 1, 2 and 4 ranks, over NCCL and through the
host's memory. The distance is that of tests/compat/precision_torch_test.py, which does the same with the CPU's kernels: the mean of the last third of
the losses' absolute differences from those in float64. Rounding is noise: the median over the ways to train is held to the first bound of BOUNDS, and
each to the second. bf16 is above autocast's distance (1.29 and 1.24 times for GPT-2 on one rank and two, 1.04 and 1.07 for Llama): values are rounded at each store, where autocast keeps
norms, softmax and sums of the residual stream in fp32. fp16 has three more bits than the bf16 of autocast (0.14 to 0.18 times). The models are small, for the emulator, and autocast's distance is the median of several sets of weights and batches, the first of which is ours."""

import argparse
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "compat"))

import gpt_torch_test as gpt  # noqa: E402

gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS, gpt.B, gpt.T = 2, 32, 2, 48, 20, 4, 12

import precision_torch_test as precision  # noqa: E402
from model_against_torch import Comparison, ours, torch  # noqa: E402

FAKES = pathlib.Path(os.environ["MUSTER_BUILD"]).resolve() / "tests" / "gpu" / "lib"
WAYS = (("cu", 1, "NO_SHARD"), ("nc", 2, "NO_SHARD"), ("nc", 2, "SHARD_OPTIM"), ("cu", 2, "SHARD_GRAD_OP"), ("nc", 4, "FULL_SHARD"), ("nc", 4, "HYBRID_SHARD"))
STRATEGIES = [strategy for _, _, strategy in WAYS]
SEEDS = range(100, 105)
BOUNDS = {"bf16": (1.5, 2.5), "f16": (0.33, 0.5)}  # times autocast's distance in bf16: the median of all ways, and each


def gpt2():
    return ["gpt2", gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS], gpt.initial_parameters, gpt.loss_of, gpt.VOCAB


def llama():
    model = precision.Llama(layers=2, channels=32, heads=4, kv_heads=2, head_size=8, hidden=48, vocab=48, positions=20)
    return model.numbers(), model.initial_parameters, model.loss_of, model.vocab


MODELS = {"gpt2": gpt2, "llama": llama}


def distances(initial_parameters, loss_of, vocabulary):
    """Parameters, batches and float64's losses of the first seed; autocast's distances of all."""
    first, found = None, []
    for seed in SEEDS:
        generator = torch.Generator().manual_seed(seed)
        parameters = initial_parameters(generator)
        tokens, targets = precision.longer(generator, vocabulary)
        exact = precision.train(precision.Model({name: value.double() for name, value in parameters.items()}, loss_of), tokens, targets)
        first = first or (parameters, tokens, targets, exact)
        rounded = precision.train(precision.Model(parameters, loss_of), tokens, targets, lambda: torch.autocast("cpu", dtype=torch.bfloat16))
        found.append((rounded - exact).abs()[-precision.LAST :].mean().item())
    return first, found


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, dtypes and strategies; all, where none of a kind is named")
    options = parser.parse_args()
    unknown = set(options.names) - {*MODELS, *BOUNDS, *STRATEGIES}
    if unknown:
        parser.error(f"neither a model, a dtype nor a strategy: {' '.join(sorted(unknown))}")
    return options


def named(names, kind):
    return [name for name in kind if name in names] or list(kind)


def compare(comparison, label, numbers, first, bar, dtype, strategies, steps):
    """One model in one dtype, all of its ways; the bounds of their median where no strategy was named."""
    parameters, tokens, targets, exact = first
    found = []
    for comm, ranks, strategy in WAYS:
        if strategy not in strategies:
            continue
        losses = ours(numbers, parameters, tokens, targets, precision.Steps(steps), dtype=f"{comm}-{dtype}", ranks=ranks, strategy=strategy, moves=(dtype, dtype, 0))[0]
        found.append((torch.tensor(losses, dtype=torch.float64) - exact).abs()[-precision.LAST :].mean().item() / bar)
        comparison.check(f"{label}, {dtype}, {ranks} ranks, {strategy}, {'NCCL' if comm == 'nc' else 'host'}, times autocast's distance", found[-1], BOUNDS[dtype][1])
    if len(found) == len(WAYS):
        comparison.check(f"{label}, {dtype}, median of all", statistics.median(found), BOUNDS[dtype][0])


def main():
    options = parse()
    precision.MIXED_STEPS, precision.LAST = options.steps, options.steps // 3
    torch.set_num_threads(1)
    os.environ.update({"MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "FAKE_CUDA_DEVICES": "4"})
    comparison = Comparison()
    for model in named(options.names, MODELS):
        numbers, initial_parameters, loss_of, vocabulary = MODELS[model]()
        first, autocast = distances(initial_parameters, loss_of, vocabulary)
        exact = first[-1]
        print(f"{model}: loss {exact[0]:.4f} -> {exact[-1]:.4f}; autocast's distances " + ", ".join(f"{value:.2e}" for value in autocast), flush=True)
        for dtype in named(options.names, BOUNDS):
            compare(comparison, model, numbers, first, statistics.median(autocast), dtype, named(options.names, STRATEGIES), options.steps)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
