/* libraries.c - see libraries.h.
 *
 * OpenBLAS 0.3.21 maps 128 MiB for each product under way, and keeps them. It packs whole factors there:
 * (longest side + rows of a block) x depth of a block, of floats. The depth is 448 on SkylakeX and 384 on
 * Haswell and Zen, the rows are 384 and 768; 512 and 1,024 stand for all.
 *
 * oneDNN 2.6.3 takes a block of each factor by posix_memalign in dnnl_sgemm: up to 9,984 columns, 384 rows
 * and a depth of 384, whole vectors, and 24 KiB of sums and edges. On AVX2 it takes half as much. Its
 * primitives would take memory of ours, but need up to 1.15 of the time (onednn.c). */
#include "kernels/libraries.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "kernels/cpu/onednn/onednn.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

enum { BLAS_ROWS = 1024, BLAS_DEPTH = 512, BLAS_MAPPED = 128 << 20 };
enum { ONEDNN_COLUMNS = 10080, ONEDNN_ROWS = 432, ONEDNN_DEPTH = 384, ONEDNN_REST = 24 << 10 };
/* A process has machine code, and threads that start between the look and the product have stacks and heaps.
 */
enum { ONEDNN_CODE = 8 << 20, LATER = 64 << 20 };

struct kernels_library_bytes kernels_cpu_library_bytes(const struct kernels *kernels, int64_t side)
{
    struct kernels_library_bytes bytes = {0};
    if (kernels == kernels_ref_bf16() || kernels == kernels_ref_f16())
        return bytes;
    const bool alone = kernels == kernels_cpu(~0u), none = kernels == kernels_cpu_by(KERNELS_ONEDNN, NULL);
    if (!none) {
        const int64_t sides = kernels->value == DTYPE_F32 ? side : 0; /* bf16 has small blocks alone */
        const int64_t touched = (sides + BLAS_ROWS) * BLAS_DEPTH * (int64_t)sizeof(float);
        bytes.mapped = BLAS_MAPPED;
        bytes.openblas = touched < BLAS_MAPPED ? touched : BLAS_MAPPED;
    }
    if (!alone && kernels->value == DTYPE_F32)
        bytes.onednn = ((side < ONEDNN_COLUMNS ? side : ONEDNN_COLUMNS) + ONEDNN_ROWS) * ONEDNN_DEPTH *
                           (int64_t)sizeof(float) +
                       ONEDNN_REST;
    return bytes;
}

int kernels_cpu_library_room(const struct kernels_library_bytes *bytes, int threads, struct muster_error *err)
{
    struct rlimit limit;
    char wanted[32], most[32];
    const int64_t need =
        threads * (bytes->mapped + bytes->onednn) + (bytes->onednn ? ONEDNN_CODE : 0) + LATER;
    if ((!bytes->mapped && !bytes->onednn) || getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    void *place = mmap(NULL, (size_t)need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED) {
        (void)munmap(place, (size_t)need); /* cannot fail: it is a whole mapping of ours */
        if (bytes->onednn)
            onednn_ready(); /* it ends the process where it finds no memory for its code */
        return 0;
    }
    return error_set(
        err, MUSTER_E_NOMEM,
        "the libraries of products need %s of address space for %d thread%s, and the limit of %s "
        "(ulimit -v) leaves less: raise the limit, or take fewer threads (training.threads)%s",
        text_format_bytes(wanted, sizeof wanted, need), threads, threads == 1 ? "" : "s",
        text_format_bytes(most, sizeof most, (int64_t)limit.rlim_cur),
        bytes->mapped && bytes->onednn ? "; with training.products: onednn OpenBLAS maps none" : "");
}
