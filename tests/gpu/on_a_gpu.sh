#!/usr/bin/env bash
# on_a_gpu.sh [--packed FOLDER] [REPORT]: everything of the CUDA back end that a machine with a GPU can try, in one go, and a report of
# what passed. It needs the driver, nvcc 13 and what ./dev installs, and fetches NVIDIA's libraries from pinned wheels (600 MB); or, with
# --packed, nothing but the driver, what tests/gpu/pack.py has packed elsewhere, and an installed PyTorch of CUDA 13, whose libraries it
# takes (MUSTER_GPU_LIBRARIES names folders of others); it has run in this way alone. A step that fails does not end it; its exit status is 1 then.
# MUSTER_GPU_SECONDS: after so many no further step begins (default 3600).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
packed=
if [ "${1:-}" = --packed ]; then
  packed=$(cd "$2" && pwd) || exit 2
  shift 2
fi
report=${1:-$root/gpu-report.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { printf '%s\n' "$*" | tee -a "$report"; }
# step SECONDS NAME COMMAND...: its last lines go into the report
step() {
  local limit=$1 name=$2 begun=$SECONDS status
  shift 2
  if [ $SECONDS -gt "${MUSTER_GPU_SECONDS:-3600}" ]; then
    say "skipped  $name: no time was left"
    return 77
  fi
  if [ "$(type -t "$1")" = function ]; then "$@" >"$work/output" 2>&1; else timeout --kill-after=5 "$limit" "$@" >"$work/output" 2>&1; fi
  status=$?
  case $status in
    0) say "passed   $name ($((SECONDS - begun)) s)" ;;
    77) say "skipped  $name: $(grep -m 1 -i skipped "$work/output")" ;;
    *)
      failed=1
      say "FAILED   $name (status $status, $((SECONDS - begun)) s)"
      grep -v '^\[ *\(RUN\|OK\) *\]' "$work/output" | tail -n 40 | cut -c 1-400 | sed 's/^/    /' | tee -a "$report"
      ;;
  esac
  return $status
}

: >"$report"
command -v nvidia-smi >/dev/null || { say "there is no nvidia-smi: no driver, nothing to try"; exit 1; }
say "muster $(git rev-parse --short HEAD 2>/dev/null), $(date -u +%FT%TZ)"
nvidia-smi --query-gpu=index,name,driver_version,memory.total,compute_cap --format=csv | tee -a "$report"
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)

if [ -n "$packed" ]; then
  programs=$packed tests=$packed/tests nvcc_tests=$packed/tests benchmarks=$packed
  export MUSTER_CUDA_MODULE=$packed/lib/libmuster_cuda.so
  libraries=${MUSTER_GPU_LIBRARIES:-$(python3 -c 'import glob, site, sys
found = {path.rpartition("/")[0] for folder in sys.path + site.getsitepackages() for name in ("libcublasLt.so.13", "libnccl.so.2")
         for path in glob.glob(f"{folder}/nvidia/*/lib/{name}")}
print(":".join(sorted(found)))')}
else
  nvcc --version 2>/dev/null | tail -n 2 | tee -a "$report"
  step 1800 "wheels of NCCL and cuBLASLt" cmake/cuda_headers.sh .cuda --libraries || exit 1
  step 1800 "build" ./dev build || exit 1
  step 1800 "build by nvcc" ./dev build cuda || exit 1
  programs=$root/build tests=$root/build/tests nvcc_tests=$root/build-cuda/tests benchmarks=$root/build
  export MUSTER_CUDA_MODULE=$root/build-cuda/lib/libmuster_cuda.so
  libraries=$(dirname "$(ldd "$MUSTER_CUDA_MODULE" | sed -n 's/.*libcudart.so.13 => \(.*\) (.*/\1/p')"):$root/.cuda/lib
fi
say "libraries: $libraries"
# Before where these programs find the fakes.
export LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-} MUSTER_REAL_LIBRARIES=1 MUSTER_BUILD=$programs

# The machine as NVML shows it.
step 60 "one worker a GPU, by NVML" bash -c "n=\$($programs/bin/muster run --standalone --nproc_per_node=gpu --termination-log= \
  sh -c 'echo rank \$RANK') && echo \"\$n\" && [ \$(echo \"\$n\" | grep -c 'rank [0-9]') = $gpus ]"
doctor() {
  "$programs/bin/muster" doctor --describe >"${report%.txt}-machine.json" || return
  "$programs/bin/muster" doctor --gpus="$gpus" | tee -a "$report"
  [ "${PIPESTATUS[0]}" -lt 2 ]
}
step 60 "muster doctor" doctor

# PyTorch's own workers, over NCCL.
cat >"$work/ddp.py" <<'END'
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
one = torch.ones(1 << 20, device="cuda") * (dist.get_rank() + 1)
dist.all_reduce(one)
assert one[0].item() == dist.get_world_size() * (dist.get_world_size() + 1) / 2, one[0]
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(5):
    loss = model(torch.ones(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
dist.destroy_process_group()
END
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  step 120 "PyTorch's DDP over NCCL, a worker a GPU" "$programs/bin/muster" run --standalone --nproc_per_node=gpu --termination-log= "$work/ddp.py"
else
  say "skipped  PyTorch's DDP over NCCL: python3 has no torch with CUDA"
fi

# Kernels, products and the table against the reference, by the real compiler and libraries.
for program in kernels_cuda_status_test kernels_cuda_test kernels_cuda_more_test kernels_cuda_attention_test gpu_products_real gpu_kernels_table_real; do
  step 60 "$program" "$nvcc_tests/$program"
done
# What the fakes are held to, of the real libraries.
step 60 gpu_cublaslt_conformance "$tests/gpu_cublaslt_conformance"
step 60 gpu_cudart_conformance "$tests/gpu_cudart_conformance"
step 60 "gpu_nccl_conformance, a rank a GPU" "$tests/gpu_nccl_conformance" "$((gpus < 8 ? gpus : 8))"
# The device through the module that nvcc built.
step 60 gpu_device "$tests/gpu_device"

# train NAME RANKS DEVICE COMM: twenty steps of a small GPT; losses into $work/NAME
for _ in $(seq 200); do echo "the quick fox jumps over the hill and then it rests."; done >"$work/text"
cat >"$work/config.yaml" <<END
training: {steps: 20, micro_batch: 1, global_batch: 4, sequence_length: 32, learning_rate: 3.0e-3, warmup_steps: 2, timeout: 60}
model: {layers: 2, channels: 64, heads: 4}
data: {path: "$work/text"}
logging: {interval: 1, sample_length: 0}
END
train() {
  timeout --kill-after=5 90 "$programs/bin/muster" run --standalone --nproc_per_node="$2" --termination-log= "$programs/bin/muster-train" "$work/config.yaml" \
    --device="$3" --set training.comm="$4" --set logging.dir="$work/logs-$1" || return
  python3 - "$work/logs-$1/log.jsonl" "$work/$1" <<'END'
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
open(sys.argv[2], "w").write("\n".join(str(step["loss"]) for step in steps if step["kind"] == "step"))
END
}
# same NAME NAME: losses of two runs differ by no more than another order of sums makes in 20 steps
same() {
  python3 - "$work/$1" "$work/$2" <<'END' | tee -a "$report"
import sys
a, b = ([float(line) for line in open(name)] for name in sys.argv[1:3])
worst = max(abs(x - y) / abs(y) for x, y in zip(a, b))
print(f"         {len(a)} steps, largest relative difference {worst:.2e}")
sys.exit(not (len(a) == len(b) == 20 and worst < 1e-4))
END
}
step 90 "20 steps on the CPU" train cpu 1 cpu host
step 90 "20 steps on a GPU" train cuda 1 cuda host && step 9 "losses as on the CPU" same cuda cpu
step 90 "20 steps of two ranks on a GPU, staged" train staged 2 cuda host && step 9 "losses of two ranks" same staged cpu
step 90 "20 steps on a GPU, NCCL of one rank" train nccl1 1 cuda nccl && step 9 "losses over NCCL" same nccl1 cpu
if [ "$gpus" -gt 1 ]; then
  step 90 "20 steps on $((gpus < 4 ? gpus : 4)) GPUs, NCCL" train nccl "$((gpus < 4 ? gpus : 4))" cuda nccl && step 9 "losses of all ranks" same nccl cpu
else
  say "skipped  NCCL between GPUs: there is one GPU"
fi
# Strategies, checkpoints that move, graphs, determinism: the tests of the fakes, of which those run that ask nothing of a fake.
for part in Learns Moves Graphs Schedules; do
  MUSTER_ON_GPU=1 step 240 "train_cuda_test.py $part" python3 tests/gpu/train/train_cuda_test.py "$part"
done
command -v compute-sanitizer >/dev/null && for tool in memcheck racecheck synccheck initcheck; do
  step 60 "compute-sanitizer $tool, kernels" compute-sanitizer --error-exitcode 9 --tool "$tool" "$nvcc_tests/gpu_kernels_table_real"
  step 60 "compute-sanitizer $tool, training" compute-sanitizer --error-exitcode 9 --tool "$tool" "$programs/bin/muster-train" "$work/config.yaml" \
    --device=cuda --set training.steps=2 --set logging.dir="$work/logs-$tool"
done
say "$([ $failed = 0 ] && echo "everything passed" || echo "something failed") after $SECONDS s; the report is $report"
exit $failed
