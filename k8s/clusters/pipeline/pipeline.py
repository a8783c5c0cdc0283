"""A Kubeflow pipeline: cleans a corpus and holds a part of it out, trains a GPT on the rest, evaluates the exported model on that part.

    pip install kfp==2.17.3 kfp-kubernetes==2.17.3
    python k8s/clusters/pipeline/pipeline.py           # compiles it to pipeline.yaml, next to this file

Each step is one shell script in the image `trainer` of k8s/Dockerfile (Debian with muster and muster-train, no Python); `cuda` in its place
trains on GPUs."""

import pathlib

from kfp import compiler, dsl, kubernetes

IMAGE = "registry.example.com/muster-trainer:latest"

# Empty and repeated lines go; every `share`-th line is held out.
PREPROCESS = r"""
corpus=$1 train=$2 held_out=$3 share=$4
mkdir -p "$(dirname "$train")" "$(dirname "$held_out")"
find "$corpus" -type f ! -name '.*' -exec cat {} + | awk -v train="$train" -v held_out="$held_out" -v share="$share" '
  NF && !seen[$0]++ { print > (++kept % share ? train : held_out) }
  END { if (kept < share) { print "the corpus has " kept + 0 " different lines, fewer than " share > "/dev/stderr"; exit 1 } }'
wc -l "$train" "$held_out"
"""

# One agent, a worker a GPU, or `workers` of them; the model is a folder that transformers reads.
TRAIN = r"""
train=$1 held_out=$2 model=$3 steps=$4 workers=$5
config=$(mktemp)
cat >"$config" <<END
training: {steps: $steps, global_batch: 16, micro_batch: 1, sequence_length: 64, learning_rate: 3.0e-3, warmup_steps: 20,
           output: "$model", output_format: hf}
model: {architecture: gpt2, layers: 4, channels: 128, heads: 4, vocabulary: 256}
data: {path: "$train", validation_path: "$held_out", tokenizer: bytes}
logging: {sample_length: 100}
END
mkdir -p "$(dirname "$model")"
exec muster run --standalone --nproc-per-node="$workers" --max-restarts=3 -- muster-train "$config"
"""

# No step is taken; without samples held out by its settings `eval` reads the whole file.
EVALUATE = r"""
held_out=$1 model=$2 loss=$3 perplexity=$4
config=$(mktemp)
cat >"$config" <<END
training: {global_batch: 1, micro_batch: 1, sequence_length: 64}
data: {path: "$held_out", tokenizer: bytes}
END
found=$(muster-train eval "$config" --model="$model" --output=json)
echo "$found"
mkdir -p "$(dirname "$loss")" "$(dirname "$perplexity")"
result() {
  echo "$found" | sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | grep . >"$2"
}
result loss "$loss"
result perplexity "$perplexity"
"""


def script(text, *arguments):
    return dsl.ContainerSpec(image=IMAGE, command=["sh", "-euc", text.strip(), "-"], args=list(arguments))


@dsl.container_component
def preprocess(corpus: str, share: int, train: dsl.Output[dsl.Dataset], held_out: dsl.Output[dsl.Dataset]):
    return script(PREPROCESS, corpus, train.path, held_out.path, share)


@dsl.container_component
def train_model(train: dsl.Input[dsl.Dataset], held_out: dsl.Input[dsl.Dataset], steps: int, workers: str, model: dsl.Output[dsl.Model]):
    return script(TRAIN, train.path, held_out.path, model.path, steps, workers)


@dsl.container_component
def evaluate(held_out: dsl.Input[dsl.Dataset], model: dsl.Input[dsl.Model], loss: dsl.OutputPath(float), perplexity: dsl.OutputPath(float)):
    return script(EVALUATE, held_out.path, model.path, loss, perplexity)


@dsl.pipeline(name="muster", description="Preprocesses a corpus, trains a GPT with muster-train, evaluates it")
def pipeline(corpus: str = "/data/corpus", share: int = 20, steps: int = 900, workers: str = "auto"):
    """corpus: a folder of texts on the claim training-data; workers: a number, `auto` (GPUs, else CPUs), `gpu`, `cpu`."""
    prepared = preprocess(corpus=corpus, share=share)
    kubernetes.mount_pvc(prepared, pvc_name="training-data", mount_path="/data")
    trained = train_model(train=prepared.outputs["train"], held_out=prepared.outputs["held_out"], steps=steps, workers=workers)
    trained.set_cpu_request("2").set_cpu_limit("4").set_memory_request("4Gi").set_memory_limit("8Gi").set_retry(2)
    kubernetes.empty_dir_mount(trained, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit="2Gi")
    evaluate(held_out=prepared.outputs["held_out"], model=trained.outputs["model"])


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, str(pathlib.Path(__file__).with_name("pipeline.yaml")))
