/* libraries.h - memory that OpenBLAS and oneDNN take by themselves for products of fp32, next to a plan's
 * bytes: neither takes it from its caller. */
#ifndef MUSTER_KERNELS_LIBRARIES_H
#define MUSTER_KERNELS_LIBRARIES_H

#include <stdint.h>

#include "kernels/kernels.h"

/* At most, for each thread that multiplies; 0: that library computes nothing. */
struct kernels_library_bytes {
    int64_t openblas; /* touched for the first time by a product, and kept */
    int64_t onednn;   /* taken and freed in each product */
    int64_t mapped;   /* address space of OpenBLAS */
};
/* For a table of kernels_cpu_by or kernels_cpu_values. side: the longest side of a matrix in its products. */
struct kernels_library_bytes kernels_cpu_library_bytes(const struct kernels *kernels, int64_t side);

/* Whether both find address space for their first products, where a limit of it is set (ulimit -v): without
 * it OpenBLAS tries for ever, and oneDNN ends the process. After the caller's own memory is taken.
 * MUSTER_E_NOMEM. */
int kernels_cpu_library_room(const struct kernels_library_bytes *bytes, int threads,
                             struct muster_error *err);

#endif
