"""PowerSGD against PyTorch's hook on DistributedDataParallel (gloo), 1 to 4 replicas: with the same gradients and the same first factors
each step's gradient, and every replica's feedback after the last step, differ by at most 1e-9 of the largest. In float64."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()
import numpy  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power  # noqa: E402

DUMP = pathlib.Path(torch_python.build()).resolve() / "tests" / "compat" / "power_dump"
SHAPES, STEPS, DENSE_STEPS = [(24, 40), (64, 16), (30, 7)], 12, 2  # the hook begins at its third step
LIMIT = 1e-9


def gradients(replica):
    """[STEPS][matrix]: noise on a part that all replicas have."""
    own, common = torch.Generator().manual_seed(100 + replica), torch.Generator().manual_seed(7)
    return [[torch.randn(shape, generator=own) * 0.3 + torch.randn(shape[0], 1, generator=common) * torch.randn(1, shape[1], generator=common)
             for shape in SHAPES] for _ in range(STEPS + DENSE_STEPS)]


class Given(torch.nn.Module):
    """A model whose gradients are given: the loss is their product with the parameters."""

    def __init__(self):
        super().__init__()
        self.matrices = torch.nn.ParameterList(torch.zeros(shape) for shape in SHAPES)

    def forward(self, given):
        return sum((matrix * gradient).sum() for matrix, gradient in zip(self.matrices, given))


def worker(replica, replicas, rank, store, folder):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", rank=replica, world_size=replicas, store=dist.FileStore(store, replicas))
    model = torch.nn.parallel.DistributedDataParallel(Given())
    state = power.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=DENSE_STEPS, min_compression_rate=1, random_seed=5)
    order = []

    def hook(state, bucket):
        order[:] = [next(i for i, own in enumerate(model.module.matrices) if own is p) for p in bucket.parameters()]
        return power.powerSGD_hook(state, bucket)

    model.register_comm_hook(state, hook)
    found = []
    for given in gradients(replica):
        model.zero_grad(set_to_none=False)
        model(given).backward()
        found.append([p.grad.clone() for p in model.module.matrices])
    assert len(order) == len(SHAPES) and list(state.error_dict) == [0]
    # The factors that the hook has begun with: its own generator's, matrix by matrix in the bucket's order.
    torch.manual_seed(numpy.random.RandomState(5).randint(1_000_000_000))
    factors = {i: torch.randn(1, SHAPES[i][1], rank)[0] for i in order}
    errors, at = {}, 0
    for i in order:
        size = SHAPES[i][0] * SHAPES[i][1]
        errors[i], at = state.error_dict[0][at:at + size].clone().view(SHAPES[i]), at + size
    torch.save({"found": found[DENSE_STEPS:], "factors": factors, "errors": errors}, folder / f"{replica}.pt")
    dist.destroy_process_group()


def ours(rank, replicas, factors):
    torch.set_default_dtype(torch.float64)
    given = [gradients(replica) for replica in range(replicas)]
    # DDP's gradients are means, and libmuster's replicas have their parts of the sum.
    data = [factors[i].T.contiguous() for i in range(len(SHAPES))]
    data += [given[r][DENSE_STEPS + step][i] / replicas for step in range(STEPS) for r in range(replicas) for i in range(len(SHAPES))]
    words = [str(number) for shape in SHAPES for number in shape]
    done = subprocess.run([DUMP, str(rank), str(replicas), str(STEPS), *words], input=b"".join(t.numpy().tobytes() for t in data), stdout=subprocess.PIPE,
                          check=True)
    numbers = torch.from_numpy(numpy.frombuffer(done.stdout, numpy.float64).copy()).view(STEPS + replicas, -1)
    return numbers[:STEPS], numbers[STEPS:]


def main():
    worst = 0
    for replicas in range(1, 5):
        for rank in (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder)
                multiprocessing.spawn(worker, (replicas, rank, str(path / "store"), path), nprocs=replicas)
                theirs = [torch.load(path / f"{r}.pt") for r in range(replicas)]
            sums, feedback = ours(rank, replicas, theirs[0]["factors"])
            flat = lambda tensors: torch.cat([t.reshape(-1) for t in tensors])
            for step in range(STEPS):
                wanted = flat(theirs[0]["found"][step])
                off = ((sums[step] - wanted).abs().max() / wanted.abs().max()).item()
                worst = max(worst, off)
                if not off <= LIMIT:
                    sys.exit(f"{replicas} replicas, rank {rank}, step {step}: the gradient is off by {off:.1e}")
            for r in range(replicas):
                wanted = flat([theirs[r]["errors"][i] for i in range(len(SHAPES))])
                off = ((feedback[r] * replicas - wanted).abs().max() / wanted.abs().max()).item()
                worst = max(worst, off)
                if not off <= LIMIT:
                    sys.exit(f"{replicas} replicas, rank {rank}: the feedback of {r} is off by {off:.1e}")
    print(f"{STEPS} steps of 1 to 4 replicas, ranks 1, 2 and 4: off by {worst:.1e} of the largest at most (PyTorch {torch.__version__})")


if __name__ == "__main__":
    main()
