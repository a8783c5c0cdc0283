#!/usr/bin/env python3
"""A driver library without a driver: every public function of cuda.h refuses with 100, no device.

    python3 make_driver.py CUDA_H OUT.c

Loading a compiled kernel and asking for its attributes succeed, since cuDNN does both while it finishes a plan for a described GPU.
The attributes are zeros, and a cluster may have eight blocks."""

import pathlib
import re
import sys

HANDLES = """cuLibraryLoadData cuLibraryGetKernel cuKernelGetFunction cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction
    cuLibraryGetModule cuCtxGetCurrent cuCtxPopCurrent""".split()
DONE = "cuLibraryUnload cuKernelSetAttribute cuModuleUnload cuFuncSetAttribute cuCtxPushCurrent cuInit".split()
VALUES = {"cuDriverGetVersion": 13000, "cuKernelGetAttribute": 0, "cuFuncGetAttribute": 0, "cuDeviceGet": 0, "cuDeviceGetCount": 1,
          "cuOccupancyMaxPotentialClusterSize": 8}


def main():
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w+)\(", pathlib.Path(sys.argv[1]).read_text())))
    lines = ["/* Made by make_driver.py. */"]
    for name in names:
        if name in HANDLES:
            lines.append(f"int {name}(void **handle) {{ static char object; *handle = &object; return 0; }}")
        elif name in VALUES:
            lines.append(f"int {name}(int *value) {{ *value = {VALUES[name]}; return 0; }}")
        elif name == "cuCtxGetLimit":
            lines.append(f"int {name}(unsigned long *value) {{ *value = 0; return 0; }}")
        else:
            lines.append(f"int {name}(void) {{ return {0 if name in DONE else 100}; }}")
    pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")


main()
