/* nvml_probe.h - all that NVML tells of this machine's GPUs, into a description, with a bound on how long a
 * sick driver may take. */
#ifndef MUSTER_LAUNCHER_HOST_NVML_PROBE_H
#define MUSTER_LAUNCHER_HOST_NVML_PROBE_H

#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

/* Asks NVML (MUSTER_NVML_LIBRARY's or the driver's) in a process of its own for at most patience_ns. Where
 * the driver hangs, refuses or is not there, nvml and nvml_error say so, and what it told before that is
 * kept. Fails without memory only. For a program that still has one thread. */
int nvml_probe_read(int64_t patience_ns, struct description *description, struct muster_error *err);

#endif
