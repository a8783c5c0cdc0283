/* devices.h - GPUs by description, for plans on machines without them. Pure data. */
#ifndef MUSTER_RUNTIME_CUDA_DEVICES_DEVICES_H
#define MUSTER_RUNTIME_CUDA_DEVICES_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/* symbol, name: choices of training.device, after device_module.h's own */
#define CUDA_DEVICES(X)                                                                                      \
    X(CUDA_DEVICE_T4, "t4")                                                                                  \
    X(CUDA_DEVICE_A100, "a100")                                                                              \
    X(CUDA_DEVICE_H100, "h100")                                                                              \
    X(CUDA_DEVICE_H200, "h200")                                                                              \
    X(CUDA_DEVICE_B200, "b200")
enum cuda_device {
#define CUDA_DEVICE_ENUM(symbol, name) symbol,
    CUDA_DEVICES(CUDA_DEVICE_ENUM)
#undef CUDA_DEVICE_ENUM
        CUDA_DEVICE_COUNT
};

/* Rates are the vendor's peaks without sparsity, in base units a second; 0: the device has no such thing. */
struct cuda_description {
    const char *name, *product, *source;
    int capability; /* compute capability, 90 for 9.0 */
    int sms;
    int clock_mhz;        /* boost clock of the SMs */
    int64_t memory_bytes; /* as the driver reports the total */
    int64_t cache_bytes;  /* L2 */
    double memory_rate;   /* bytes, read and written together */
    int memory_bus_bits;
    double fp32, tf32, fp16, bf16; /* operations of products */
    double nvlink, pcie;           /* bytes in each direction, of all links together */
};

/* NULL: no such device. */
const struct cuda_description *cuda_description(int device);

/* A GPU as its driver reports it; 0: not known. */
struct cuda_facts {
    char product[64];
    int capability, sms, clock_mhz;
    int64_t memory_bytes;
    double memory_rate; /* bytes, by the clock of its memory and the width of the bus */
    int count;          /* GPUs that the process sees */
};
/* Fills the description of a GPU: the table's where it has that GPU, else peaks by the operations of a
 * multiprocessor in a clock. The second sort has no name, no NVLink, and the product of the facts, which
 * have to stay. false: a fact that it needs is not known, or the capability is below 75. */
bool cuda_describe(const struct cuda_facts *facts, struct cuda_description *out);

#endif
