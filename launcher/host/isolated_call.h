/* isolated_call.h - runs a call in a process of its own, with a time limit: for calls that can block in
 * the kernel for ever, such as calls of a sick driver or a dead file server. */
#ifndef MUSTER_LAUNCHER_HOST_ISOLATED_CALL_H
#define MUSTER_LAUNCHER_HOST_ISOLATED_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* Runs body in a fork of this process and copies the size bytes that it wrote to result, or its error.
 * After the patience the process is killed without waiting for it, and the error is MUSTER_E_TIMEOUT
 * ("NVML did not respond in 5 s"). The process is not our child, so that no wait can block on it, and has
 * none of our descriptors. For a program that still has one thread. Blocks for at most the patience. */
int isolated_call(int (*body)(void *context, void *result, struct muster_error *err), void *context,
                  void *result, size_t size, int64_t patience_ns, const char *what, struct muster_error *err);

#endif
