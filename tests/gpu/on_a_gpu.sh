#!/usr/bin/env bash
# on_a_gpu.sh [--packed FOLDER | --rehearse] [--output FOLDER] [--seconds 480] [--phases NAME,NAME] [--list]: everything of the CUDA back
# end that a machine with a GPU can show, in phases with limits and result files of their own (day/day.py). It needs the driver, nvcc 13
# and what ./dev installs, builds, and fetches NVIDIA's libraries from pinned wheels (600 MB). --packed needs nothing but the driver, what
# tests/gpu/pack.py has packed elsewhere, and a PyTorch of CUDA 13, whose cuBLASLt and NCCL it takes. --rehearse is for a machine without
# a GPU: the fakes and the emulator of ./dev build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case " $* " in
  *" --packed "* | *" --rehearse "* | *" --list "* | *" --help "* | *" -h "*) exec python3 tests/gpu/day/day.py "$@" ;;
esac
python3 tests/gpu/day/day.py --list "$@" >/dev/null # a word that it does not know, before all is built
cmake/cuda_headers.sh .cuda --libraries
./dev build
./dev build cuda
exec python3 tests/gpu/day/day.py --built "$@"
