/* nccl_test_device.h - as much of a CUDA device as comm_nccl asks for, and its state for tests. */
#ifndef MUSTER_TESTS_NCCL_TEST_DEVICE_H
#define MUSTER_TESTS_NCCL_TEST_DEVICE_H

#include "runtime/device/device.h"

/* launch, sync, fail, poll_error, arenas of device and pinned memory, stream handles; no events. */
const struct device_ops *nccl_test_device(void);
/* The rank whose device makes no arena any more; -1: none. */
extern _Atomic(int) nccl_test_device_refuses;
/* Is poll_error slow, by so many ms, for all threads but the opening thread? So it is for a thread
 * that watches looks with. */
extern _Atomic(int) nccl_test_device_watched_late_ms;

#endif
