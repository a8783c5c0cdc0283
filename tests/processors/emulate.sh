#!/bin/sh
# emulate.sh SYSROOT PROGRAM [ARGUMENT...]: an aarch64 program under qemu-user. Where the kernel lets a user namespace have a
# binfmt_misc of its own (Linux 6.7), the programs that it starts are emulated too, and so is what these start; nothing outside
# sees it. Elsewhere EMULATE_ALONE=1 tells that only the first one is.
export QEMU_LD_PREFIX="$1"
shift
# --register: inside the namespaces
if [ "$1" = --register ]; then
  shift
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && mount -t tmpfs none /dev/shm && ip link set lo up || exit 126
  # the magic and mask of an ELF header for aarch64, as Debian's qemu-user-binfmt has them
  printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64)"':' \
    >/proc/sys/fs/binfmt_misc/register || exit 126
  exec "$@"
fi
if unshare -Urmn "$0" "$QEMU_LD_PREFIX" --register true 2>/dev/null; then
  exec unshare -Urmn "$0" "$QEMU_LD_PREFIX" --register "$@"
fi
EMULATE_ALONE=1 exec qemu-aarch64 "$@"
