#!/usr/bin/env bash
# on_a_gpu.sh [REPORT]: everything of the CUDA back end that a machine with a GPU can try, in one go, and a report of what passed.
# It needs the driver, nvcc 13 and what ./dev installs; it fetches NVIDIA's libraries from pinned wheels (600 MB). Written where
# there was no GPU: the script itself has run on none. A step that fails does not end it; its exit status is 1 then.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
report=${1:-$root/gpu-report.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { printf '%s\n' "$*" | tee -a "$report"; }
# step NAME COMMAND...: its last lines go into the report
step() {
  local name=$1 begun=$SECONDS status
  shift
  "$@" >"$work/output" 2>&1
  status=$?
  case $status in
    0) say "passed   $name ($((SECONDS - begun)) s)" ;;
    77) say "skipped  $name: $(grep -m 1 -i skipped "$work/output")" ;;
    *)
      failed=1
      say "FAILED   $name (status $status)"
      tail -n 30 "$work/output" | sed 's/^/    /' | tee -a "$report"
      ;;
  esac
  return $status
}

: >"$report"
command -v nvidia-smi >/dev/null || { say "there is no nvidia-smi: no driver, nothing to try"; exit 1; }
say "muster $(git rev-parse --short HEAD 2>/dev/null), $(date -u +%FT%TZ)"
nvidia-smi --query-gpu=index,name,driver_version,memory.total,compute_cap --format=csv | tee -a "$report"
nvcc --version 2>/dev/null | tail -n 2 | tee -a "$report"
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)

step "wheels of NCCL and cuBLASLt" cmake/cuda_headers.sh .cuda --libraries || exit 1
step "build" ./dev build || exit 1
step "build by nvcc" ./dev build cuda || exit 1
cudart=$(dirname "$(ldd build-cuda/lib/libmuster_cuda.so | sed -n 's/.*libcudart.so.13 => \(.*\) (.*/\1/p')")
export LD_LIBRARY_PATH=$cudart:$root/.cuda/lib:${LD_LIBRARY_PATH:-}
export MUSTER_CUDA_MODULE=$root/build-cuda/lib/libmuster_cuda.so

# Kernels, products and the table against the reference, by the real compiler and libraries.
for program in kernels_cuda_test kernels_cuda_more_test kernels_cuda_status_test gpu_cublaslt_conformance gpu_products_real gpu_kernels_table_real; do
  step "$program" "build-cuda/tests/$program"
done
# What the fakes are held to, of the real libraries: LD_LIBRARY_PATH comes before where these programs find the fakes.
[ ! -x build/tests/gpu_cudart_conformance ] || step gpu_cudart_conformance build/tests/gpu_cudart_conformance
[ ! -x build/tests/gpu_nccl_conformance ] || step "gpu_nccl_conformance, a rank a GPU" build/tests/gpu_nccl_conformance "$((gpus < 8 ? gpus : 8))"
# The device through the module that nvcc built.
[ ! -x build/tests/gpu_device ] || step gpu_device build/tests/gpu_device
command -v compute-sanitizer >/dev/null && for tool in memcheck racecheck synccheck initcheck; do
  step "compute-sanitizer $tool" compute-sanitizer --error-exitcode 9 --tool "$tool" build-cuda/tests/gpu_kernels_table_real
done

# train NAME RANKS DEVICE COMM: three steps of a small GPT; losses into $work/NAME
for _ in $(seq 200); do echo "the quick fox jumps over the hill and then it rests."; done >"$work/text"
cat >"$work/config.yaml" <<END
training: {steps: 20, micro_batch: 1, global_batch: 4, sequence_length: 32, learning_rate: 3.0e-3, warmup_steps: 2, timeout: 60}
model: {layers: 2, channels: 64, heads: 4}
data: {path: "$work/text"}
logging: {interval: 1, sample_length: 0}
END
train() {
  build/bin/muster run --standalone --nproc_per_node="$2" --termination-log= build/bin/muster-train "$work/config.yaml" --device="$3" \
    --set training.comm="$4" --set logging.dir="$work/logs-$1" || return
  python3 - "$work/logs-$1/log.jsonl" "$work/$1" <<'END'
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
open(sys.argv[2], "w").write("\n".join(str(step["loss"]) for step in steps if step["kind"] == "step"))
END
}
# same NAME NAME: losses of two runs differ by no more than another order of sums makes in 20 steps
same() {
  python3 - "$work/$1" "$work/$2" <<'END'
import sys
a, b = ([float(line) for line in open(name)] for name in sys.argv[1:3])
worst = max(abs(x - y) / abs(y) for x, y in zip(a, b))
print(f"{len(a)} steps, largest relative difference {worst:.2e}")
sys.exit(not (len(a) == len(b) == 20 and worst < 1e-4))
END
}
step "20 steps on the CPU" train cpu 1 cpu host
step "20 steps on a GPU" train cuda 1 cuda host && step "losses as on the CPU" same cuda cpu
step "20 steps of two ranks on a GPU, staged" train staged 2 cuda host && step "losses of two ranks" same staged cpu
step "20 steps on a GPU, NCCL of one rank" train nccl1 1 cuda nccl && step "losses over NCCL" same nccl1 cpu
if [ "$gpus" -gt 1 ]; then
  step "20 steps on $((gpus < 4 ? gpus : 4)) GPUs, NCCL" train nccl "$((gpus < 4 ? gpus : 4))" cuda nccl && step "losses of all ranks" same nccl cpu
else
  say "skipped  NCCL between GPUs: there is one GPU"
fi
say "$([ $failed = 0 ] && echo "everything passed" || echo "something failed"); the report is $report"
exit $failed
