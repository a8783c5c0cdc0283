#!/bin/sh
# onednn3_test.sh PROGRAM FOLDER - the CPU's kernels with libdnnl.so.3 of that folder, in place of the system's.
set -eu
if [ ! -e "$2/libdnnl.so.3" ]; then
  echo "skipped: there is no $2/libdnnl.so.3 (./dev test --full fetches it)"
  exit 77
fi
LD_LIBRARY_PATH=$2 LD_DEBUG=files "$1" 2>"$1.files" || { tail -5 "$1.files"; exit 1; }
grep -q 'file=libdnnl.so.3.*generating link map' "$1.files" || { echo "libdnnl.so.3 was not loaded"; exit 1; }
rm -f "$1.files"
