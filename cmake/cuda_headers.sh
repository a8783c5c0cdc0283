#!/usr/bin/env bash
# cuda_headers.sh DIR [--libraries | --tests]: NVIDIA's headers for the CUDA back end, from pinned wheels of PyPI, into DIR/include;
# with --libraries the shared libraries too, into DIR/lib (for tests against the real ones; nothing links with them), with --tests
# those that tests load without a driver, NCCL and cuBLASLt (900 MB), and with MUSTER_CUDNN=1 cuDNN (1 GB). Needs no root and no toolkit and changes nothing else. Done
# before: it only looks.
set -euo pipefail
# What the module is written against. What is loaded at run time may be another version (runtime/cuda/libraries.h).
wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14 nvidia-nccl-cu13==2.28.9)
# Attention's, 460 MB, with MUSTER_CUDNN=1: cuDNN, its C++ frontend (headers), and the compiler that it loads.
cudnn=(nvidia-cudnn-cu13==9.19.0.56 nvidia-cudnn-frontend==1.18.0 nvidia-cuda-nvrtc==13.0.88)
usage() { echo "usage: cuda_headers.sh DIR [--libraries | --tests]" >&2; exit 2; }
[ $# = 1 ] || [ $# = 2 ] || usage
case ${2:-} in
  "") libraries=headers enough="headers tests yes" ;;
  --tests) libraries=tests enough="tests yes" ;;
  --libraries) libraries=yes enough=yes ;;
  *) usage ;;
esac
wheels_there=()
mkdir -p "$1"
root=$(cd "$1" && pwd)
there=$(cat "$root/.wheels" 2>/dev/null || true)
for known in $enough; do
  [ "$there" = "${wheels[*]} ${cudnn[*]} $known" ] && exit 0
  [ "$there" = "${wheels[*]} $known" ] || continue
  [ -n "${MUSTER_CUDNN:-}" ] || exit 0
  wheels_there=("${wheels[@]}") wheels=() # the others are there
done
[ -z "${MUSTER_CUDNN:-}" ] || wheels+=("${cudnn[@]}")

work=$(mktemp -d "$root/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
python=${MUSTER_PYTHON:-python3}
if ! "$python" -m pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv" || { echo "cuda_headers.sh: there is no pip: install python3-venv" >&2; exit 1; }
  python=$work/venv/bin/python
fi
for wheel in "${wheels[@]}"; do # one after the other: the largest is 400 MB, and only its headers stay
  "$python" -m pip --quiet --disable-pip-version-check download --no-deps --no-cache-dir --only-binary :all: --dest "$work" "$wheel" 2>"$work/log" || {
    tail -n 3 "$work/log" >&2
    echo "cuda_headers.sh: $wheel cannot be had" >&2
    exit 1
  }
  "$python" - "$root" "$libraries" "$work"/*.whl <<'END'
import pathlib, sys, zipfile
root, libraries = pathlib.Path(sys.argv[1]), sys.argv[2]
wanted = {"headers": (), "tests": ("libnccl.so", "libcublasLt.so", "libcudnn", "libnvrtc"), "yes": ("",)}[libraries]  # how their names begin
with zipfile.ZipFile(sys.argv[3]) as wheel:
    for name in wheel.namelist():
        parts = pathlib.PurePosixPath(name).parts  # nvidia/PACKAGE/include/...
        if name.endswith("/") or name.endswith(".py"):
            continue
        if "include" in parts[:3] and "cccl" not in parts:  # of CCCL what the other headers include: nv/target
            to = root / "include" / pathlib.Path(*parts[parts.index("include") + 1:])
        elif "lib" in parts[:3] and parts[-1].startswith(wanted) and (".so" in parts[-1] or parts[-1].endswith(".a")) and ".alt." not in parts[-1]:
            to = root / "lib" / parts[-1]
        elif "licenses" in parts:
            to = root / "licenses" / parts[0].partition("-")[0]
        else:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        with wheel.open(name) as source, to.open("wb") as target:
            while block := source.read(1 << 20):
                target.write(block)
END
  rm -f "$work"/*.whl
done
wheels=("${wheels_there[@]}" "${wheels[@]}")
echo "${wheels[*]} $libraries" >"$root/.wheels"
