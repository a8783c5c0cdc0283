#!/usr/bin/env bash
# demo.sh BUILD FOLDER [--set key=value ...] - what `./dev run` shows: a small GPT is trained on two workers with evaluations, the best
# checkpoint kept and averaged weights; one worker is killed on purpose behind the first checkpoint, and the run goes on from there.
# FOLDER gets log.jsonl, tensorboard/, trace/, checkpoints/, model.safetensors and sample.txt; what an earlier demo left in it is removed.
set -euo pipefail
build=$1 folder=$2
shift 2
config=$(dirname "${BASH_SOURCE[0]}")/../k8s/configs/gpt-demo.yaml

# kill_one AGENT: kills a worker of that agent when the first checkpoint is there.
kill_one() {
  local child
  until compgen -G "$folder/checkpoints/step-*" >/dev/null; do
    [ -e "/proc/$1" ] || return 0
    sleep 0.1
  done
  sleep 1 # so that there are steps to do again
  for child in $(cat "/proc/$1/task/$1/children"); do
    if [ "$(readlink "/proc/$child/exe")" -ef "$build/bin/muster-train" ]; then
      printf '\ndemo: kill -9 %s: a worker fails, on purpose; the run goes on from its last checkpoint\n' "$child" >&2
      kill -KILL "$child"
      return 0
    fi
  done
}

# page: flags that serve the job's page on this machine, if it can be served; muster run tells its address.
page() {
  local port
  [ -n "$(ldconfig -p 2>/dev/null | grep libmicrohttpd.so.12)" ] || return 0
  for port in {8080..8099}; do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "--metrics-port=$port --metrics-addr=127.0.0.1"
      return 0
    fi
  done
}

rm -rf "$folder/checkpoints" "$folder/tensorboard" "$folder/trace" "$folder/log.jsonl" "$folder/model.safetensors" "$folder/sample.txt"
mkdir -p "$folder"
kill_one $$ 2>&1 & # the agent takes this shell's place, and its process id
exec "$build/bin/muster" run --standalone --nproc_per_node=2 --max-restarts=3 --rdzv-id=demo $(page) "$build/bin/muster-train" "$config" \
  --set "logging.dir=$folder" --trace=20-22 --set "training.output=$folder/model.safetensors" \
  --set "training.checkpoint_dir=$folder/checkpoints" --set training.checkpoint_every=100 \
  --set data.validation_share=0.02 --set training.evaluate_every=100 --set training.evaluate_samples=256 \
  --set training.keep_best=true --set training.ema_decay=0.99 --set training.ema_evaluate=true --set training.ema_export=true "$@"
