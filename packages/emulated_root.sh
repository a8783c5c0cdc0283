#!/bin/bash
# emulated_root.sh ROOT COMMAND [ARGUMENT...]: a command of another machine's Debian in that Debian's root folder, its programs emulated
# (qemu-user-static). Real root is needed: users and groups are the same inside. The kernel (Linux 6.7 or newer) has a binfmt_misc
# for a user namespace, so that nothing outside learns of the emulator, and all goes when the command ends. ROOT is bound over itself;
# /proc and /dev are this machine's.
set -euo pipefail

# Second part, inside: users are known once the parent has written the maps.
if [ "$1" = --inside ]; then
  shift
  read -r _ <&3
  exec "$0" --mapped "$@"
fi
# Third part: exec as user 0 of the namespace has given it its rights.
if [ "$1" = --mapped ]; then
  root=$2
  shift 2
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
  # the magic and mask of an ELF header for aarch64; F: the emulator is opened now, from outside ROOT
  printf '%s' ':muster-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':F' \
    >/proc/sys/fs/binfmt_misc/register
  mount --bind "$root" "$root"
  for folder in proc dev; do
    mkdir -p "$root/$folder"
    mount --rbind "/$folder" "$root/$folder"
  done
  exec chroot "$root" /usr/bin/env -i PATH=/opt/muster/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
fi

[ "$(id -u)" = 0 ] || { echo "emulated_root: another machine's users can be mapped by root alone" >&2; exit 1; }
command -v qemu-aarch64-static >/dev/null || { echo "emulated_root: qemu-aarch64-static is missing (package qemu-user-static)" >&2; exit 1; }
root=$(realpath "$1")
shift
folder=$(mktemp -d)
mkfifo "$folder/go"
exec 4<>"$folder/go"
rm -r "$folder"
unshare --user --mount "$0" --inside "$root" "$@" 3<&4 4<&- &
child=$!
trap 'kill "$child" 2>/dev/null || true' EXIT # a map that is refused, a signal: it would wait for ever
# until unshare has made its user namespace
own=$(readlink /proc/self/ns/user)
for _ in $(seq 500); do
  theirs=$(readlink "/proc/$child/ns/user") || break
  [ "$theirs" = "$own" ] || break
  sleep 0.02
done
echo '0 0 65536' >"/proc/$child/uid_map"
echo '0 0 65536' >"/proc/$child/gid_map"
echo go >&4
status=0
wait "$child" || status=$?
trap - EXIT
exit "$status"
