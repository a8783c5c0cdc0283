/* isolated_call.h - a call in a process of its own, with a time limit: for what can block in the kernel for
 * ever, such as a sick driver or a file server that is gone. */
#ifndef MUSTER_LAUNCHER_HOST_ISOLATED_CALL_H
#define MUSTER_LAUNCHER_HOST_ISOLATED_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* Runs body in a fork of this process and copies the size bytes that it wrote to result, or its error. Past
 * the patience the process is killed, not waited for, and the error is MUSTER_E_TIMEOUT ("what did not answer
 * in 5 s"). The process is no child of ours, so that it can never be in the way of a wait, and has no
 * descriptor of ours. For a program that still has one thread. Blocks for at most the patience. */
int isolated_call(int (*body)(void *context, void *result, struct muster_error *err), void *context,
                  void *result, size_t size, int64_t patience_ns, const char *what, struct muster_error *err);

#endif
