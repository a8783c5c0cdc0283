"""A Kubeflow pipeline: tokenizes labelled reviews and holds a part of them out, trains a classifier, evaluates it on that part.

    pip install kfp==2.17.3 kfp-kubernetes==2.17.3
    python k8s/clusters/pipeline/reviews.py            # compiles it to reviews.yaml, next to this file

Each step is one command of muster-train with an exit code and a result in JSON, in the image `trainer` of k8s/Dockerfile; `cuda` in its
place trains on GPUs. The ConfigMap training-config has config.json: num_epochs, batch_size, learning_rate."""

import pathlib

from kfp import compiler, dsl, kubernetes

IMAGE = "registry.example.com/muster-trainer:latest"

# The input of all steps, and the tokens, once: the next steps find them in the cache.
PREPROCESS = r"""
reviews=$1 text_key=$2 label_key=$3 tokenizer=$4 vocabulary=$5 cache=$6 config=$7 info=$8
mkdir -p "$(dirname "$config")" "$(dirname "$info")"
cat >"$config" <<END
training: {num_epochs: 5, batch_size: 64, learning_rate: 0.001, sequence_length: 256, validation_split: 0.2}
model: {type: text_classifier, channels: 64, vocabulary: $vocabulary}
data: {data_path: "$reviews", text_key: "$text_key", label_key: "$label_key", tokenizer: "$tokenizer", cache_dir: "$cache"}
END
muster-train preprocess "$config" --output=json >"$info"
cat "$info"
"""

# One agent, a worker a GPU, or `workers` of them. The ConfigMap's file counts before the settings above.
TRAIN = r"""
config=$1 settings=$2 workers=$3 model=$4 result=$5
mkdir -p "$model" "$(dirname "$result")"
muster run --standalone --nproc-per-node="$workers" --max-restarts=3 -- muster-train "$config" "$settings" --output=json \
  --set training.output="$model/model.safetensors" --set training.output_format=safetensors >"$result"
cat "$result"
"""

EVALUATE = r"""
config=$1 settings=$2 model=$3 accuracy=$4 f1=$5 result=$6
mkdir -p "$(dirname "$accuracy")" "$(dirname "$f1")" "$(dirname "$result")"
muster-train eval "$config" "$settings" --model="$model/model.safetensors" --output=json >"$result"
cat "$result"
figure() {
  sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$result" | grep . >"$2"
}
figure accuracy "$accuracy"
figure f1 "$f1"
"""


def script(text, *arguments):
    return dsl.ContainerSpec(image=IMAGE, command=["sh", "-euc", text.strip(), "-"], args=list(arguments))


@dsl.container_component
def preprocess(reviews: str, text_key: str, label_key: str, tokenizer: str, vocabulary: int, cache: str, config: dsl.Output[dsl.Artifact],
               info: dsl.Output[dsl.Artifact]):
    return script(PREPROCESS, reviews, text_key, label_key, tokenizer, vocabulary, cache, config.path, info.path)


@dsl.container_component
def train_model(config: dsl.Input[dsl.Artifact], settings: str, workers: str, model: dsl.Output[dsl.Model],
                result: dsl.Output[dsl.Artifact]):
    return script(TRAIN, config.path, settings, workers, model.path, result.path)


@dsl.container_component
def evaluate(config: dsl.Input[dsl.Artifact], settings: str, model: dsl.Input[dsl.Model], accuracy: dsl.OutputPath(float),
             f1: dsl.OutputPath(float), result: dsl.Output[dsl.Artifact]):
    return script(EVALUATE, config.path, settings, model.path, accuracy, f1, result.path)


def mounted(task, settings=True):
    """The claim with the reviews and the cache, and the ConfigMap."""
    kubernetes.mount_pvc(task, pvc_name="training-data", mount_path="/data")
    if settings:
        kubernetes.use_config_map_as_volume(task, config_map_name="training-config", mount_path="/config")
    return task


@dsl.pipeline(name="muster-reviews", description="Tokenizes labelled reviews, trains a classifier with muster-train, evaluates it")
def pipeline(reviews: str = "/data/reviews.csv", text_key: str = "text", label_key: str = "label", tokenizer: str = "/data/tokenizer.json",
             vocabulary: int = 32000, cache: str = "/data/cache", settings: str = "/config/config.json", workers: str = "auto"):
    """reviews: a table, or a folder, on the claim training-data; workers: a number, `auto` (GPUs, else CPUs), `gpu`, `cpu`."""
    prepared = mounted(preprocess(reviews=reviews, text_key=text_key, label_key=label_key, tokenizer=tokenizer, vocabulary=vocabulary,
                                  cache=cache), settings=False)
    trained = mounted(train_model(config=prepared.outputs["config"], settings=settings, workers=workers))
    trained.set_cpu_request("2").set_cpu_limit("4").set_memory_request("4Gi").set_memory_limit("8Gi").set_retry(2)
    kubernetes.empty_dir_mount(trained, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit="2Gi")
    mounted(evaluate(config=prepared.outputs["config"], settings=settings, model=trained.outputs["model"]))


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, str(pathlib.Path(__file__).with_name("reviews.yaml")))
