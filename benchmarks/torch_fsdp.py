"""A PyTorch GPT sharded by libmuster (python/muster/torch.py) against PyTorch's own fully_shard (FSDP2) with gloo.

    torch_fsdp.py --build DIR [--ranks 2 4] [--rounds 3] [--steps 4] [--layers 12] [--width 768] [--tokens 128]

Both train the same model on the same tokens with AdamW, each rank one thread, in fp32 and with bf16 parameters whose gradients are
reduced in fp32; rounds alternate. Two limits are measured in the same
rounds: `alone` is the same forward and backward of a whole model on every rank at once with no communication, and AdamW on 1/size of it;
`copies` is the time of the bytes that sharding has to move through memory (every gathered parameter written once, every gradient read
and written once, every reduced one read), at the rate at which all ranks copy at once. Memory is the peak of a rank's own and shared
pages (PSS without files) over the process's memory before the model, sampled in steps that are not timed."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from support import results

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = 50257


def own_memory():
    rows = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
    return sum(int(rows[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


# ---- one rank ----


class Peak(threading.Thread):
    """Looks at this process's memory every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes, self.stop = 0, False

    def run(self):
        while not self.stop:
            self.bytes = max(self.bytes, own_memory())
            time.sleep(0.01)


def copy_rate(torch, dist):
    """Bytes a second that this rank copies (each byte read and written) while all ranks do."""
    a, b, times = torch.ones(16 << 20), torch.ones(16 << 20), []
    for _ in range(8):
        dist.barrier()
        start = time.perf_counter()
        b.copy_(a)
        times.append(time.perf_counter() - start)
    return a.numel() * 4 / statistics.median(times)


def steppers(torch, dist, model, size):
    """mode: a function that makes the function that updates after backward. bf16: 16-bit parameters, gradients reduced in fp32."""
    narrow = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}

    def muster(**dtypes):
        import muster.torch

        sharded = muster.torch.shard(model, model.blocks, **dtypes)
        return lambda: sharded.step(lr=1e-4)

    def fully_shard(**dtypes):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy
        from torch.distributed.fsdp import fully_shard as shard

        mesh, policy = init_device_mesh("cpu", (size,)), MixedPrecisionPolicy(**dtypes)
        for block in model.blocks:
            shard(block, mesh=mesh, mp_policy=policy)
        shard(model, mesh=mesh, mp_policy=policy)
        update = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step():
            update.step()
            update.zero_grad()

        return step

    def alone():
        part = torch.nn.Parameter(torch.zeros(sum(p.numel() for p in model.parameters()) // size))
        part.grad = torch.zeros_like(part)
        update = torch.optim.AdamW([part], lr=1e-4, fused=True)

        def step():
            update.step()
            for p in model.parameters():
                p.grad = None

        return step

    return {"muster": muster, "fully_shard": fully_shard, "alone": alone, "muster bf16": lambda: muster(**narrow),
            "fully_shard bf16": lambda: fully_shard(**narrow)}


def worker(options):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
    from torch_fsdp import GPT

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    rate = copy_rate(torch, dist)
    dist.barrier()
    before = own_memory()
    torch.manual_seed(0)
    model = GPT(options.layers, options.width, options.width // 64, options.tokens, VOCABULARY)
    parameters = sum(p.numel() for p in model.parameters())
    update = steppers(torch, dist, model, size)[options.worker]()

    def step(number):
        generator = torch.Generator().manual_seed(100 * number + rank)
        tokens = torch.randint(0, VOCABULARY, (1, options.tokens + 1), generator=generator)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        update()
        return loss.item()

    losses, times = [], []
    for number in range(2 + options.steps):
        dist.barrier()
        start = time.perf_counter()
        losses.append(step(number))
        times.append(time.perf_counter() - start)
    peak = Peak()
    peak.start()
    for number in range(2):
        step(2 + options.steps + number)
    peak.stop = True
    peak.join()
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    memory = torch.tensor(float(peak.bytes - before))
    dist.all_reduce(memory, op=dist.ReduceOp.MAX)
    if rank == 0:
        # gathers of forward and backward (the root's and the last block's stay for backward), gradients in and reduced
        block = sum(p.numel() for p in model.blocks[0].parameters())
        gathered = 2 * parameters - block - (parameters - options.layers * block)
        copied = 4 * (gathered + 2 * parameters)
        result = {"seconds": statistics.median(times[2:]), "memory": memory.item(), "losses": (mean / size).tolist(),
                  "copies": copied / rate, "parameters": parameters}
        pathlib.Path(options.out).write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


# ---- the rounds ----


def run(options, mode, ranks):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(pathlib.Path(options.build) / "bin" / "muster"), "run", "--standalone", f"--nproc-per-node={ranks}", "--no-python", "--",
                   options.python, __file__, "--worker", mode, "--out", out.name]
        for name in ("steps", "layers", "width", "tokens"):
            command += [f"--{name}", str(getattr(options, name))]
        environment = dict(os.environ, OMP_NUM_THREADS="1", MUSTER_LIBRARY=str(pathlib.Path(options.build).resolve() / "lib" / "libmuster.so"))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{mode}, {ranks} ranks: exit code {done.returncode}\n{done.stderr[-3000:]}")
        return json.loads(pathlib.Path(out.name).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--python", default=os.environ.get("MUSTER_TORCH_PYTHON", str(ROOT / ".venv/bin/python")))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    for name, value in (("rounds", 3), ("steps", 4), ("layers", 12), ("width", 768), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    results.add_argument(parser)
    options = parser.parse_args()
    if options.worker:
        return worker(options)
    recorded = results.Run("torch_fsdp")
    modes = ("muster", "fully_shard", "alone", "muster bf16", "fully_shard bf16")
    for ranks in options.ranks:
        rounds = [{mode: run(options, mode, ranks) for mode in modes} for _ in range(options.rounds)]

        def median(mode, what):
            return statistics.median(r[mode][what] for r in rounds)

        first, copies = rounds[0], statistics.median(r[mode]["copies"] for r in rounds for mode in modes)
        print(f"{ranks} ranks of one thread, {first['muster']['parameters'] / 1e6:.0f}M parameters, {options.tokens} tokens a rank; medians of "
              f"{options.rounds} rounds of {options.steps} steps")
        for mode in modes:
            print(f"  {mode:16} {median(mode, 'seconds') * 1000:8.0f} ms a step   {median(mode, 'memory') / 2**20:8.0f} MB a rank")
        limit = median("alone", "seconds") + copies
        whole = 16 * first["muster"]["parameters"] / ranks
        print(f"  copies           {copies * 1000:8.0f} ms; alone and copies {limit * 1000:.0f} ms; parameters, gradients and moments / ranks "
              f"{whole / 2**20:.0f} MB")
        print(f"  muster: {median('muster', 'seconds') / limit:.2f} of the limit")
        for kind in ("", " bf16"):
            ours, theirs = f"muster{kind}", f"fully_shard{kind}"
            words, peer = f"{kind}, {ranks} ranks", "fully_shard with gloo"
            faster = statistics.median(r[theirs]["seconds"] / r[ours]["seconds"] for r in rounds)
            recorded.add(
                f"PyTorch GPT of {first['muster']['parameters'] / 1e6:.0f}M sharded{words}", "ms", [1e3 * r[ours]["seconds"] for r in rounds],
                {peer: 1e3 * median(theirs, "seconds")}, None if kind else ("the model whole, without communication, with the copies", 1e3 * limit),
                ratios={peer: faster},
            )  # fmt: skip
            recorded.add(f"the same, memory a rank{words}", "MB", median(ours, "memory") / 2**20, {peer: median(theirs, "memory") / 2**20})
            far = max(abs(a - b) / b for a, b in zip(first[ours]["losses"], first[theirs]["losses"]))
            print(f"  {ours} against {theirs}: {statistics.median(r[theirs]['seconds'] / r[ours]['seconds'] for r in rounds):.2f} times as fast, "
                  f"{statistics.median(r[ours]['memory'] / r[theirs]['memory'] for r in rounds):.2f} of its memory; losses "
                  f"{first[ours]['losses'][0]:.6f} ... {first[ours]['losses'][-1]:.6f}, from its at most {far:.1e} (relative)")
    recorded.write(options)


if __name__ == "__main__":
    main()
