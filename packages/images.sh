#!/usr/bin/env bash
# images.sh --output DIR [--machine aarch64] [--keep STORE] [TARGET...]: builds targets of k8s/Dockerfile (launcher and trainer where none
# is named) with buildah and writes each as DIR/muster-TARGET-<version>-linux-<arch>.oci.tar. The base is a Debian 12 that debootstrap
# makes, so that no registry is asked; one of another machine is configured under an emulator (emulated_root.sh). Root is needed; the
# images lie in a store of their own, which goes when this ends (--keep leaves it).
set -euo pipefail
cd "$(dirname "$0")/.."
output= store= keep= targets=() machine=$(uname -m)
while [ $# -gt 0 ]; do
  case $1 in
    --output) output=$2 && shift 2 ;;
    --machine) machine=$2 && shift 2 ;;
    --keep) keep=yes store=$2 && shift 2 ;;
    -*) echo "images: unknown option '$1'" >&2 && exit 2 ;;
    *) targets+=("$1") && shift ;;
  esac
done
[ -n "$output" ] || { echo "usage: images.sh --output DIR [--machine aarch64] [--keep STORE] [TARGET...]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "images: debootstrap and buildah's chroots need root" >&2; exit 1; }
[ ${#targets[@]} -gt 0 ] || targets=(launcher trainer)
version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
case $machine in
  x86_64 | aarch64) ;;
  *) echo "images: the machine is '$machine', not x86_64 or aarch64" >&2 && exit 2 ;;
esac
debian_name() { if [ "$1" = aarch64 ]; then echo arm64; else echo amd64; fi; }
mirror=${MUSTER_DEBIAN_MIRROR:-} # where it is empty, debootstrap's own

store=${store:-$(mktemp -d /var/tmp/muster-images.XXXXXX)}
mkdir -p "$store" "$output"
clean() {
  buildah --root "$store/root" --runroot "$store/run" rm --all >/dev/null 2>&1 || true
  umount "$store/root/overlay" 2>/dev/null || true
  [ -n "$keep" ] || rm -rf "$store"
}
trap clean EXIT
export BUILDAH_ISOLATION=chroot # nothing but root is needed, in a container too
images() { buildah --root "$store/root" --runroot "$store/run" "$@"; }

base_of() { echo "localhost/muster-debian-$1:12"; }

# make_root MACHINE DIR
make_root() {
  if [ "$1" = "$(uname -m)" ]; then
    debootstrap --variant=minbase bookworm "$2" ${mirror:+"$mirror"}
  else
    debootstrap --variant=minbase --arch="$(debian_name "$1")" --foreign bookworm "$2" ${mirror:+"$mirror"} &&
      # "lxc": in a user namespace no devices are made, and there are some
      packages/emulated_root.sh "$2" /usr/bin/env container=lxc /debootstrap/debootstrap --second-stage &&
      rm -rf "$2/debootstrap"
  fi
}

# make_base MACHINE: Debian as its own installer leaves it; documents and lists of packages stay away, as in debian:12-slim.
make_base() {
  local container mounted base
  base=$(base_of "$1")
  images inspect "$base" >/dev/null 2>&1 && return
  echo "images: a Debian 12 for $1 from ${mirror:-Debian}" >&2
  make_root "$1" "$store/debian" >"$store/debootstrap.log" 2>&1 ||
    { tail -n 5 "$store/debootstrap.log" >&2; echo "images: debootstrap failed" >&2; exit 1; }
  rm -rf "$store"/debian/var/cache/apt/archives/*.deb "$store"/debian/var/lib/apt/lists/* "$store"/debian/usr/share/{doc,man,locale}/*
  container=$(images from scratch)
  mounted=$(images mount "$container")
  tar -C "$store/debian" -c . | tar -C "$mounted" -x
  rm -rf "$store/debian"
  images config --arch "$(debian_name "$1")" --cmd /bin/sh --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  images umount "$container" >/dev/null
  images commit --quiet --rm "$container" "$base" >/dev/null
}

size_of() { images inspect --type image --format '{{.FromImageID}}' "$1" >/dev/null && images images --json "$1" | sed -n 's/.*"size": "\(.*\)".*/\1/p'; }

make_base "$(uname -m)" # what is built is built there
make_base "$machine"
base=$(base_of "$machine")
# buildah 1.28 takes the target's platform for the builder's where nothing is said, looks into registries for what has a platform of its
# own, and keeps a stage's platform for those after it: k8s/Dockerfile names each
for target in "${targets[@]}"; do
  name=localhost/muster-$target:$version archive=$output/muster-$target-$version-linux-$machine.oci.tar
  images bud --quiet --pull-never --layers --file k8s/Dockerfile --platform "linux/$(debian_name "$machine")" --build-arg "DEBIAN_IMAGE=$base" \
    --build-arg "BUILDPLATFORM=linux/$(debian_name "$(uname -m)")" --build-arg "BUILD_IMAGE=$(base_of "$(uname -m)")" --target "$target" --tag "$name" . >"$store/$target.log" 2>&1 ||
    { tail -n 40 "$store/$target.log" >&2; echo "images: $target failed" >&2; exit 1; }
  rm -f "$archive"
  images push --quiet "$name" "oci-archive:$archive:$target"
  echo "images: $archive ($(size_of "$name"), of which the base is $(size_of "$base"))" >&2
done
