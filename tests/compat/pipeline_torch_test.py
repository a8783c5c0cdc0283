"""Pipelines of muster against those of torch.distributed.pipelining on gloo, in float64: the same Llama in the same parts, the same
micro-batches, GPipe, 1F1B and interleaved, 20 steps of SGD and of AdamW. Losses, norms, the gradients of the first step and the
parameters after the last agree to 1e-12. And muster-train --check-schedule on torch's own tables: all are proved, but for the table of
its 1F1B, whose last stage counts micro-batches from 1.

One process imports torch and forks the ranks. How to find torch: model_against_torch.py."""
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile

from model_against_torch import BUILD, CLIP, Comparison, Variant, adam, batches, ours, sgd, torch

import torch.distributed as dist
import torch.nn.functional as functional

from llama_torch_test import Llama

BOUND, SAMPLES, T, STEPS = 1e-12, 8, 16, 20
LLAMA = Llama(layers=4)
VARIANTS = (Variant("SGD with momentum", 2, sgd(momentum=0.9), momentum=0.9, steps=STEPS, rate=0.1), Variant("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS))
# torch's class; stages, parts a stage, micro-batches; muster's schedule
CASES = (("GPipe", 2, 1, 4, "gpipe"), ("1F1B", 2, 1, 8, "1f1b"), ("Interleaved1F1B", 2, 2, 4, "interleaved"))
TABLES = (("GPipe", 1), ("1F1B", 1), ("LoopedBFS", 2), ("Interleaved1F1B", 2), ("Interleaved1F1B", 3), ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2),
          ("DualPipeV", 2))


class Part(torch.nn.Module):
    """A run of the model's layers: the embedding is layer 0, the head the last one."""

    def __init__(self, part, parts, parameters):
        super().__init__()
        layers = LLAMA.layers + 2
        self.layers = range(layers * part // parts, layers * (part + 1) // parts)
        self.names = [name for name in parameters if LLAMA.layer_of(name) in self.layers]
        self.values = torch.nn.ParameterList([parameters[name].double() for name in self.names])

    def forward(self, x):
        p = dict(zip(self.names, self.values))
        for layer in self.layers:
            x = LLAMA.layer(p, layer, x)
        return x


def torch_step(schedule, parts, stage, optimizer, tokens, targets):
    """The loss on the last stage (else 0) and the norm, over all ranks; gradients are clipped as torch does."""
    optimizer.zero_grad()
    last = stage == dist.get_world_size() - 1
    losses = []
    schedule.step(*([tokens] if stage == 0 else []), **({"target": targets, "losses": losses} if last else {}))
    grads = [value.grad for part in parts for value in part.values]
    sums = torch.stack([sum(grad.square().sum() for grad in grads), torch.stack(losses).mean().detach() if last else torch.zeros((), dtype=torch.float64)])
    dist.all_reduce(sums)
    norm = sums[0].sqrt()
    return sums[1].item(), norm.item(), grads, (CLIP / (norm + 1e-6)).clamp(max=1.0)


def torch_run(rank, case, variant, parameters, tokens, targets):
    from torch.distributed.pipelining import PipelineStage, schedules

    name, stages, chunks, micros, _ = case
    parts = [Part(rank + stages * chunk, stages * chunks, parameters) for chunk in range(chunks)]
    pipeline = [PipelineStage(part, rank + stages * chunk, stages * chunks, torch.device("cpu")) for chunk, part in enumerate(parts)]
    loss = lambda logits, target: functional.cross_entropy(logits.reshape(-1, LLAMA.vocab), target.reshape(-1))
    schedule = schedules.get_schedule_class(name)(pipeline if chunks > 1 else pipeline[0], n_microbatches=micros, loss_fn=loss)
    named = {n: value for part in parts for n, value in zip(part.names, part.values)}
    optimizer = variant.make([group for group in variant.groups(named) if group["params"]])
    losses, norms, first = [], [], None
    for step in range(STEPS):
        loss_value, norm, grads, factor = torch_step(schedule, parts, rank, optimizer, tokens[step], targets[step])
        losses.append(loss_value)
        norms.append(norm)
        first = first or {n: value.grad.clone() for n, value in named.items()}
        for grad in grads:
            grad.mul_(factor)
        optimizer.step()
    return losses, norms, first, {n: value.detach() for n, value in named.items()}


def be_rank(rank, folder, parameters, tokens, targets):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=120))
    for c, case in enumerate(CASES):
        for v, variant in enumerate(VARIANTS):
            torch.save(torch_run(rank, case, variant, parameters, tokens, targets), folder / f"{c}-{v}-{rank}")
    dist.barrier()


def torch_ranks(folder, *data):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    children = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                be_rank(rank, folder, *data)
                code = 0
            except BaseException as error:  # the parent has no other word of it
                print(f"rank {rank} of torch: {type(error).__name__}: {error}", flush=True)
            os._exit(code)  # gloo's threads are left behind
        children.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in children):
        sys.exit("torch's own run failed")


def compare(comparison):
    generator = torch.Generator().manual_seed(7)
    parameters = LLAMA.initial_parameters(generator)
    tokens, targets = batches(generator, LLAMA.vocab, SAMPLES, T)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        torch_ranks(folder, parameters, tokens, targets)
        for c, (name, stages, chunks, micros, schedule) in enumerate(CASES):
            for v, variant in enumerate(VARIANTS):
                ranks = [torch.load(folder / f"{c}-{v}-{rank}") for rank in range(2)]
                gradients, trained = ({n: both[n] for n in parameters} for both in (ranks[0][2] | ranks[1][2], ranks[0][3] | ranks[1][3]))
                found = ours(LLAMA.numbers(), parameters, tokens, targets, variant, "f64", 1, "NO_SHARD", micros, pipeline=(stages, chunks, schedule))
                what = f"{name}, {stages} stages of {chunks}, {micros} micro-batches, {variant.name}: "
                relative = lambda a, b: max(abs(x - y) / abs(y) for x, y in zip(a, b))
                comparison.check(f"{what}losses", relative(found[0], ranks[0][0]), BOUND)
                comparison.check(f"{what}norms", relative(found[1], ranks[0][1]), BOUND)
                comparison.check_gradients(what, found[2], gradients, BOUND)
                way = torch.cat([(trained[n] - parameters[n]).flatten() for n in parameters]).norm()
                comparison.check(f"{what}parameters", (torch.cat([(found[3][n] - trained[n]).flatten() for n in parameters]).norm() / way).item(), BOUND)
                if not ranks[0][0][-1] < ranks[0][0][0]:
                    comparison.failures.append("torch's loss has not fallen")


def prove(comparison):
    """torch's tables, as its visualizer has them."""
    from torch.distributed.pipelining import _schedule_visualizer

    count = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, chunks in TABLES:
            for ranks in (2, 4, 8):
                for micros in (ranks, 2 * ranks, 4 * ranks):
                    if name == "DualPipeV" and micros < 2 * ranks:
                        continue  # torch refuses it
                    rows = _schedule_visualizer.get_schedule_ops(name, ranks, micros, num_stages_per_rank=chunks)
                    path = pathlib.Path(folder) / f"{name}-{ranks}-{chunks}-{micros}.csv"
                    path.write_text("\n".join(",".join("" if action is None else str(action) for action in row) for row in rows))
                    done = subprocess.run([BUILD / "bin" / "muster-train", "--check-schedule", path], capture_output=True, text=True)
                    wrong = f"rank {ranks - 1}, call 2: {ranks - 1}B0 comes before {ranks - 1}F0"
                    proved = f"{ranks} ranks, {ranks * chunks} parts (" in done.stdout and f"{micros} micro-batches" in done.stdout
                    if not (done.returncode == 2 and wrong in done.stderr if name == "1F1B" else done.returncode == 0 and proved):
                        print(f"FAILED {path.name}: {done.stdout}{done.stderr}")
                        comparison.failures.append(path.name)
                    count += 1
                    refused += done.returncode != 0
    print(f"{count} tables, {refused} refused")


def main():
    torch.set_num_threads(1)
    comparison = Comparison()
    compare(comparison)
    prove(comparison)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
