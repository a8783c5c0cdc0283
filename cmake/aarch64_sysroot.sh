#!/usr/bin/env bash
# aarch64_sysroot.sh DIR [PACKAGE...]: the aarch64 libraries that muster links, and those of further packages, from Debian, for
# cmake/aarch64.cmake. Needs no root and changes nothing of the machine: apt keeps a state of its own under DIR and installs nothing.
# DIR/.packages names what is there, DIR/.owners the package and version that each library comes from.
set -euo pipefail
packages=(libc6-dev libgomp1 libzmq3-dev libsodium-dev libprotobuf-c-dev libyaml-dev libjansson-dev libmicrohttpd-dev libncurses-dev libcmocka-dev
  libopenblas-openmp-dev libdnnl-dev zlib1g-dev libpng-dev libzstd-dev libxxhash-dev)
[ $# -ge 1 ] || { echo "usage: aarch64_sysroot.sh DIR [PACKAGE...]" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
packages+=("${@:2}")
there="links are relative; ${packages[*]}"
[ "$(cat "$root/.packages" 2>/dev/null)" = "$there" ] && exit 0

apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
export APT_CONFIG=$apt/apt.conf
apt-get -qq update >"$apt/log" 2>&1 || true # a source without arm64 is no obstacle; what is missing shows in the next step
apt-get -qq install -y --download-only "${packages[@]}" >>"$apt/log" 2>&1 || {
  tail -n 5 "$apt/log" >&2
  echo "aarch64_sysroot.sh: the packages for arm64 cannot be had" >&2
  exit 1
}
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed -n 's|.*/\(lib[^/]*\.so[.0-9]*\)$|\1|p' |
    sed "s|\$| $(dpkg-deb --show --showformat='${Package} ${Version}' "$package")|" >>"$apt/owners"
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --no-same-owner --keep-directory-symlink --wildcards \
    --exclude='./usr/share/*' --exclude='./usr/bin/*' --exclude='./etc/*' --exclude='./var/*' --exclude='*/libicu*' --exclude='*/libopenblas*.a'
done
# libm.so is a link to /lib/aarch64-linux-gnu: on this machine nothing is there, and a linker would take libm.a or give up.
find "$root" -type l -lname '/*' -exec sh -c 'for link; do ln -sfrT "$0$(readlink "$link")" "$link"; done' "$root" {} +
mv "$apt/owners" "$root/.owners"
echo "$there" >"$root/.packages"
