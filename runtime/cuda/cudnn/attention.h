/* attention.h - attention by cuDNN where it can be had: which shapes it takes, their workspace, and their
 * graphs, made once a shape.
 *
 * Taken: values of 16 bits on sm_80 and later, heads of 64 or 128, every position of its own document and
 * window of all (no lengths, positions, window or cap), rows at multiples of 16 bytes, gradients that are
 * stored and not added. For anything else the caller has kernels of its own. Backward sums in a fixed order,
 * whose workspace grows with the square of T (4.1 GiB for 32 heads of 128 at T = 8,192): it is left to the
 * caller where it would take more than a CUDNN_WORK_SHARE of the GPU's memory. No GPU has run it yet. */
#ifndef MUSTER_RUNTIME_CUDA_CUDNN_ATTENTION_H
#define MUSTER_RUNTIME_CUDA_CUDNN_ATTENTION_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_description;

enum { CUDNN_WORK_SHARE = 16 };

/* Loads the library. described: a GPU that is not here, whose graphs are planned alone; NULL: the current
 * CUDA device. capability: 90 for sm_90; memory: bytes of the GPU. NULL with the reason: the build has no
 * cuDNN, the library is missing or old, the device or the type of values has no such attention. */
struct attention_by *cudnn_attention_open(const struct cuda_description *described, int capability,
                                          int64_t memory, enum dtype values, struct muster_error *err);
void cudnn_attention_close(struct attention_by *by); /* its graphs must have run; accepts NULL */

/* By the shape alone; why (may be NULL): what stands against it. Pure. */
bool cudnn_attention_fits(const struct attention *a, struct muster_error *why);

/* Whether a->by, not NULL, takes a direction of the shape: *work is then its bytes of workspace. Makes the
 * graphs of a new shape, about a second; from one thread at a time for a `by`. */
bool cudnn_attention_takes(const struct attention *a, int backward, size_t *work, struct muster_error *why);

/* As cuda_attention_*; 1: not taken, and nothing was enqueued. */
int cudnn_attention_forward(void *out, void *lse, const void *q, const void *k, const void *v,
                            const struct attention *a, void *work, void *stream, struct muster_error *err);
int cudnn_attention_backward(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream, struct muster_error *err);

/* Shapes that were asked about: how many cuDNN takes, of these without backward, and the others; the reasons
 * of the first of each; "cuDNN 9.19.0". */
struct cudnn_attention_report {
    char library[32];
    int taken, refused, forward_alone;
    struct muster_error why, why_alone;
};
void cudnn_attention_report(const struct attention_by *by, struct cudnn_attention_report *report);
/* One line on the library and on the shapes that are muster's. Pure. */
void cudnn_attention_text(const struct cudnn_attention_report *report, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
