/* module.h - the one function that libmuster_cuda.so exports. */
#ifndef MUSTER_RUNTIME_CUDA_MODULE_H
#define MUSTER_RUNTIME_CUDA_MODULE_H

#include "runtime/device/device_module.h"

__attribute__((visibility("default"))) const struct muster_cuda_module *muster_cuda_module(void);

#endif
