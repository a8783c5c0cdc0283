/* onednn_abi.h - the two binary interfaces of oneDNN behind one: libdnnl.so.3 (Debian 13, Ubuntu 24.04), and
 * libdnnl.so.2 (Debian 12). See onednn.h. */
#ifndef MUSTER_KERNELS_CPU_ONEDNN_ONEDNN_ABI_H
#define MUSTER_KERNELS_CPU_ONEDNN_ONEDNN_ABI_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/onednn/onednn.h"
#include "proto/include/muster_error.h"

struct onednn_shape {
    int32_t rows, columns, depth, a_stride, b_stride, out_stride;
    int32_t flags; /* ONEDNN_... */
};
enum {
    ONEDNN_A_TRANSPOSED = 1,
    ONEDNN_B_TRANSPOSED = 2,
    ONEDNN_ADDS = 4,   /* to out */
    ONEDNN_BIAS = 8,   /* of bf16 */
    ONEDNN_NARROW = 16 /* out is bf16 */
};

/* Row-major order for the library's own function: a product of fp32 on the calling thread. 0: done. */
typedef int onednn_sgemm(char a_transposed, char b_transposed, int64_t rows, int64_t columns, int64_t depth,
                         float alpha, const float *a, int64_t a_stride, const float *b, int64_t b_stride,
                         float beta, float *out, int64_t out_stride);

/* symbols of instruction sets, in both interfaces: value, name */
#define ONEDNN_ISAS(X)                                                                                       \
    X(0x1, "sse41")                                                                                          \
    X(0x3, "avx")                                                                                            \
    X(0x7, "avx2")                                                                                           \
    X(0x27, "avx512_core")                                                                                   \
    X(0x67, "avx512_core_vnni")                                                                              \
    X(0xe7, "avx512_core_bf16")
/* Bits that AMX adds to bf16, in version 2 (0x3e7) and 3 (0xfef). */
enum { ONEDNN_ISA_AVX512 = 0x27, ONEDNN_ISA_BF16 = 0xe7, ONEDNN_ISA_TILES = 0x200 };

struct onednn_abi {
    /* Loads the library; once, from one thread. */
    int (*open)(struct muster_error *err);
    void (*version)(int *major, int *minor, int *patch);
    unsigned (*isa)(void); /* bits, as the library counts them */
    /* A product of bf16 of this shape: machine code, which stays. NULL: the library refuses. */
    void *(*make)(const struct onednn_shape *shape);
    /* scratch: SCRATCH_LIBRARY bytes of the calling thread. The library's own scratch belongs to the thread
     * that made the code, and others may not run it at the same time. */
    bool (*run)(const void *made, const struct onednn_product *product, void *scratch);
    onednn_sgemm *const *sgemm; /* after open */
};

extern const struct onednn_abi onednn_v2, onednn_v3;

#endif
