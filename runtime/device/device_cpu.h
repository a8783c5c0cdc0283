/* device_cpu.h - functions that only the CPU device has, in addition to its table (device_cpu() in device.h).
 *
 * A stream is a thread with a bounded FIFO. Enqueuing, recording and waiting never allocate; all waits are
 * futexes. Streams may be fed from any thread; events, arenas and streams are made and destroyed by one
 * thread at a time.
 *
 * After the first failure (device_ops->fail) every enqueue returns -1 and every stream drains: entries
 * that are already queued are taken off in order without running their work, events included, so that
 * nothing waits for ever. `sync` still waits until the stream is idle before it returns the error: after
 * it returns, the stream no longer touches memory. */
#ifndef MUSTER_RUNTIME_DEVICE_DEVICE_CPU_H
#define MUSTER_RUNTIME_DEVICE_DEVICE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/device/device.h"

enum { DEVICE_CPU_QUEUE = 1024 }; /* entries of a stream that may wait; a power of two */

/* Whether the caller is the thread of a compute stream: only such threads may enter OpenMP or BLAS. */
bool device_cpu_on_compute_thread(void);

/* Tests: memory of later arenas is filled with this byte instead of zeros (-1: zeros again), which exposes
 * reads of memory that was never written. */
void device_cpu_poison(struct device *device, int byte);
/* Tests: total bytes that arenas may take, instead of the machine's free memory (-1: the machine's again). */
void device_cpu_memory_limit(struct device *device, int64_t bytes);

/* Pure: whether an arena of `wanted` bytes fits where `available` bytes are free (0: not known, so yes) and
 * `promised` bytes of earlier arenas were never touched and so still count as free. Fails with
 * MUSTER_E_NOMEM naming the bytes. */
int device_cpu_memory_fits(int64_t wanted, int64_t available, int64_t promised, enum memory_class memory,
                           struct muster_error *err);

#endif
