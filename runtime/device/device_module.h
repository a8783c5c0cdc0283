/* device_module.h - finds, opens and checks devices that come from modules (libmuster_cuda.so, which alone
 * knows CUDA), and chooses the device of a run.
 *
 * The module is looked for at the path in MUSTER_CUDA_MODULE. Without that variable it is looked for next to
 * the program or library that has this code, in ../lib of that folder, and where the loader looks. It stays
 * loaded until the process ends. Any thread may call. */
#ifndef MUSTER_RUNTIME_DEVICE_DEVICE_MODULE_H
#define MUSTER_RUNTIME_DEVICE_DEVICE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/device/device.h"

/* MUSTER_CUDA_ABI is raised with KERNELS_ABI too, which is looked at nowhere else. */
enum { MUSTER_CUDA_ABI = 10, MUSTER_CUDA_PLACE = 32 };
#define MUSTER_CUDA_FILE "libmuster_cuda.so"

struct comm_ops;
struct cuda_description; /* runtime/cuda/devices/devices.h */
struct cuda_facts;

/* Result of the module's one function, muster_cuda_module. */
struct muster_cuda_module {
    uint32_t abi, size;  /* MUSTER_CUDA_ABI, sizeof */
    const char *version; /* version of CUDA's headers that it was built with: "13.0" */
    const struct device_ops *device;
    const struct comm_ops *comm_nccl; /* NULL: the module was built without it */
    /* Whether driver and a device answer: 0, or -1 naming which of driver, device or version is missing. */
    int (*probe)(struct muster_error *err);
    /* Where the GPU of a local rank is on its machine: "0000:1b:00", the same for all that share it. */
    int (*locate)(int local_rank, char place[MUSTER_CUDA_PLACE], struct muster_error *err);
    /* The GPU of this machine that has the fewest bytes, used or not; a rank of its own gets them all. */
    int (*facts)(struct cuda_facts *facts, struct muster_error *err);
    /* Whether the library of comm_nccl is there and recent enough; NULL like comm_nccl. */
    int (*probe_nccl)(struct muster_error *err);
    /* The table of a device that need not be here: with values and weights of a type, products in tf32 if
     * they are f32, and attention by cuDNN where `cudnn`. described: that GPU; NULL: any, without cuDNN. NULL
     * with the reason. It stays until the process ends. */
    const struct kernels *(*kernels)(const struct cuda_description *described, enum dtype values, bool tf32,
                                     bool cudnn, struct muster_error *err);
};
typedef const struct muster_cuda_module *muster_cuda_module_function(void);

/* The module; NULL and an error that names which file, library or version is missing. MUSTER_E_NOT_FOUND
 * where there is no such file at all. */
const struct muster_cuda_module *device_module_load(struct muster_error *err);

/* symbol, name */
#define DEVICE_CHOICES(X)                                                                                    \
    X(DEVICE_AUTO, "auto")                                                                                   \
    X(DEVICE_CPU, "cpu")                                                                                     \
    X(DEVICE_CUDA, "cuda")
enum device_choice {
#define DEVICE_CHOICE_ENUM(symbol, name) symbol,
    DEVICE_CHOICES(DEVICE_CHOICE_ENUM)
#undef DEVICE_CHOICE_ENUM
        DEVICE_CHOICE_COUNT
};

struct device_chosen {
    const struct device_ops *ops;
    const struct muster_cuda_module *module; /* cuda's module; else NULL */
    /* Why DEVICE_AUTO chose the CPU although the module is installed; else empty. */
    struct muster_error passed_over;
};
/* DEVICE_AUTO: cuda where the module loads and a device answers, else the CPU, and never an error. */
int device_choose(enum device_choice choice, struct device_chosen *chosen, struct muster_error *err);

#endif
