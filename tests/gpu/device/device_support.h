/* device_support.h - the fixture of the tests of the CUDA device's table: a device of the module with two
 * streams and two arenas, over the fakes or a GPU. */
#ifndef MUSTER_TESTS_GPU_DEVICE_SUPPORT_H
#define MUSTER_TESTS_GPU_DEVICE_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/cuda/cuda_stream.h"
#include "runtime/device/device_module.h"

enum { BYTES = 3 << 20 };

struct fixture {
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *a, *b;        /* for transfers */
    struct device_arena memory, pinned; /* BYTES each */
};

/* Whether faults can be asked for. */
bool device_on_fakes(void);
/* Ends the program as skipped where there is no device. */
const struct muster_cuda_module *device_module(void);
int device_begin(void **state);
int device_end(void **state);
/* Waits for the stream; fails after 20 s, and with the device's error. */
void device_finish(const struct fixture *f, struct device_stream *stream);

/* A function of the runtime that the module uses; NULL: it cannot be found. */
void *device_function(const char *name);
/* Calls of a function so far, by the fake's count; 0 on a GPU. */
uint64_t device_calls(const char *function);

/* For launches: 100 floats are added to themselves. */
struct device_add {
    const struct kernels *kernels;
    void *numbers, *stream;
};
void device_add_numbers(void *argument);

/* This program again, with a single test: the process keeps an asynchronous error. Not 0: it failed. */
int device_run_alone(char *program, const char *test);

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, device_begin, device_end)

#endif
