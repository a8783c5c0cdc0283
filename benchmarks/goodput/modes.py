"""The rows of goodput.py: how each launcher is started, and what of this tree or of a peer a row needs."""

import pathlib

import torchft_peer

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SAVE_EVERY = 20
COPY_EVERY = 5

# batch: sequences of a step of all ranks
MODELS = {
    "demo": dict(layers=4, channels=128, heads=4, vocabulary=256, batch=16, positions=64),
    "124m": dict(layers=12, channels=768, heads=12, vocabulary=50257, batch=4, positions=64),
}


def endpoint_serves(run, workers):
    return run.nodes[0] if run.agents.get(0) and run.agents[0].runs() else None


def store_serves(run, workers):
    """muster's server has the workers' store. Workers that stay have the environment of an earlier round; after a change of the server
    some worker is new."""
    from harness import cluster

    places = [cluster.environment_of(pid) for pids in workers.values() for pid in pids.values()]
    newest = max((place for place in places if "MUSTER_ROUND" in place), key=lambda place: int(place["MUSTER_ROUND"]), default={})
    return next((node for node in run.nodes if node.address == newest.get("MASTER_ADDR")), None)


class Mode:
    """A row. `absent(bench)` names a missing part of it; "" where it can run."""

    name = peer = ""
    spare_waits = True  # the fifth node's agent is started with the others
    serving = staticmethod(endpoint_serves)

    def absent(self, bench):
        return ""

    def prepare(self, run):
        pass

    def end(self, run):
        pass


class Muster(Mode):
    """muster run with muster-train, elastic, so that the fifth node is a spare."""

    serving = staticmethod(store_serves)

    def __init__(self, name, strategy, *settings):
        self.name, self.strategy, self.settings = name, strategy, settings

    def command(self, run, number):
        model = run.bench.model
        settings = [
            f"training.steps={run.steps}", f"training.micro_batch={model['batch'] // run.bench.working}", f"training.global_batch={model['batch']}",
            f"training.sequence_length={model['positions']}", f"training.strategy={self.strategy}", "training.learning_rate=1e-3",
            "training.warmup_steps=20", "training.threads=1", f"training.checkpoint_dir={run.folder / 'checkpoints'}",
            "training.checkpoint_keep=2", "training.output=", "model.architecture=gpt2", f"model.layers={model['layers']}",
            f"model.channels={model['channels']}", f"model.heads={model['heads']}", f"model.vocabulary={model['vocabulary']}",
            f"data.path={run.bench.text}", "data.tokenizer=bytes", "logging.sample_length=0", f"logging.json={run.log.path}", *self.settings,
        ]  # fmt: skip
        return [
            str(run.bench.build / "bin" / "muster"), "run", f"--nnodes={run.bench.working}:{run.bench.working}", "--nproc-per-node=1",
            "--max-restarts=10000", "--rdzv-backend=c10d", f"--rdzv-endpoint={run.nodes[0].address}:{run.port}",
            f"--local-addr={run.nodes[number].address}", "--termination-log=", "--", str(run.bench.build / "bin" / "muster-train"),
            str(run.bench.empty), *[word for setting in settings for word in ("--set", setting)],
        ], {"OMP_NUM_THREADS": "1"}  # fmt: skip


class Torch(Mode):
    """torchrun with fully_shard and torch.distributed.checkpoint. An agent that waits for a place makes the others restart their workers
    again and again, so the spare's is started when a node is lost. Its own store is not shared with the workers: there the addresses of
    the round before stay, and no round after a failure connects."""

    spare_waits = False

    name, peer = "torchrun with torch.distributed.checkpoint", "torchrun"

    def absent(self, bench):
        return "" if bench.torch else f"{bench.options.torch_python} has no torch"

    def command(self, run, number):
        return [
            run.bench.options.torch_python, "-m", "torch.distributed.run", f"--nnodes={run.bench.working}", "--nproc-per-node=1",
            "--max-restarts=10000", "--rdzv-backend=c10d", "--rdzv-id=goodput", f"--rdzv-endpoint={run.nodes[0].address}:{run.port}",
            f"--local-addr={run.nodes[number].address}", f"--rdzv-conf=is_host={int(number == 0)},join_timeout=600",
            str(SOURCE / "benchmarks" / "goodput" / "gpt_torch.py"), *worker_arguments(run),
        ], {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # fmt: skip


def worker_arguments(run):
    model = run.bench.model
    return [
        str(run.steps), *(str(model[key]) for key in ("layers", "channels", "heads", "vocabulary", "batch", "positions")),
        str(run.bench.text), str(run.log.path), str(run.folder / "checkpoints"), str(SAVE_EVERY),
    ]  # fmt: skip


class TorchFT(Mode):
    """TorchFT: a replica a node, the fifth a spare; the lighthouse is on the first node."""

    name, peer = "TorchFT with replicas", "TorchFT"
    lighthouse = None

    def absent(self, bench):
        return f"no torch in {bench.options.torch_python}" if not bench.torch else torchft_peer.install(bench.options.torch_python)

    def command(self, run, number):
        program = [str(SOURCE / "benchmarks" / "goodput" / "gpt_torchft.py"), str(number), str(run.bench.working), *worker_arguments(run)]
        address = run.nodes[0].address
        return [run.bench.options.torch_python, *program], {
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(torchft_peer.HOME), "TORCHFT_LIGHTHOUSE": f"http://{address}:{run.port}",
            "LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": run.nodes[number].address, "MASTER_PORT": str(run.port + 1),
            "LIGHTHOUSE_PORT": str(run.port) if number == 0 else "0",
        }  # fmt: skip


MODES = (
    Muster(f"muster with checkpoints every {SAVE_EVERY} steps", "FULL_SHARD", f"training.checkpoint_every={SAVE_EVERY}"),
    Muster(
        f"muster with memory copies every {COPY_EVERY} steps", "FULL_SHARD", "training.checkpoint_every=200",
        f"training.memory_copies={COPY_EVERY}",
    ),  # fmt: skip
    Muster("muster with replicas", "NO_SHARD", "training.checkpoint_every=200"),
    Torch(),
    TorchFT(),
)
