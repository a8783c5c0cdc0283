/* fake_nvml.h - a libnvidia-ml.so for tests, described by variables:
 *
 * FAKE_NVML: UUIDs of GPUs separated by spaces, a GPU's MIG instances after it with a plus each ("GPU-a
 * GPU-b+MIG-1+MIG-2"); "fail" for a driver that refuses, "hang" for a driver that blocks for ever, "crash"
 * for a driver that ends its process. GPU n is on bus 3a + n, or FAKE_NVML_BUS (hexadecimal) + n.
 *
 * FAKE_NVML_FACTS: "WHO.fact=value" separated by spaces, WHO a GPU's number, a pair "0-1" or "*" for all; the
 * first that fits counts, and other facts are not supported. fake_nvml_facts.c lists the facts.
 *
 * FAKE_NVML_FAIL: "function:code" or "function@gpu:code", the code a number, "hang" or "crash". */
#ifndef MUSTER_FAKE_NVML_H
#define MUSTER_FAKE_NVML_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    FAKE_SUCCESS = 0,
    FAKE_INVALID_ARGUMENT = 2,
    FAKE_NOT_SUPPORTED = 3,
    FAKE_NOT_FOUND = 6,
    FAKE_INSUFFICIENT_SIZE = 7,
    FAKE_GPU_IS_LOST = 15,
    FAKE_UUID_SIZE = 96
};

struct fake_device {
    char uuid[FAKE_UUID_SIZE];
    int gpu, instance; /* instance: -1 for the whole */
};

struct fake_pci {
    char legacy[16];
    unsigned numbers[5];
    char bus[32];
};

/* The value of the skip-th fact of this name, up to a blank; NULL where there is none. */
const char *fake_fact(const struct fake_device *device, const char *name, int skip);
int fake_number(const struct fake_device *device, const char *name, long long *out);
int fake_pair_number(const struct fake_device *a, const struct fake_device *b, const char *name,
                     unsigned *out);
int fake_bus(int gpu);
/* What FAKE_NVML_FAIL, or a lost GPU, says to this call. */
int fake_enter(const char *function, const struct fake_device *device);
#define FAKE_ENTER(device)                                                                                   \
    do {                                                                                                     \
        int refused_ = fake_enter(__func__, device);                                                         \
        if (refused_ != FAKE_SUCCESS)                                                                        \
            return refused_;                                                                                 \
    } while (0)

#endif
