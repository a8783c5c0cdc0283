/* graph.h - attention as graphs of cuDNN: C functions over NVIDIA's C++ frontend, which graph.cpp alone
 * includes.
 *
 * A graph is made for one shape and for one device: the current CUDA device, or a GPU that is described and
 * not here. The latter can be planned and not run. Backward sums in a fixed order, which costs it workspace.
 * No GPU has run a graph yet. Errors are MUSTER_E_UNSUPPORTED where cuDNN has no engine. Nothing here throws.
 */
#ifndef MUSTER_RUNTIME_CUDA_CUDNN_GRAPH_H
#define MUSTER_RUNTIME_CUDA_CUDNN_GRAPH_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_description;
struct cudnn_place;
struct cudnn_graph;

/* Whether this build has it: 0, or -1 with the way to have it. */
int cudnn_graph_built(struct muster_error *err);

/* cuDNN for a described GPU; NULL: for the current CUDA device, with a handle of the library. library: of
 * dlopen.
 */
struct cudnn_place *cudnn_place_open(void *library, const struct cuda_description *described,
                                     struct muster_error *err);
void cudnn_place_close(struct cudnn_place *place); /* after its graphs; accepts NULL */

/* values: DTYPE_BF16 or DTYPE_F16, of q, k, v, out and their gradients; lse is float. Takes about half a
 * second. NULL with cuDNN's reason. */
struct cudnn_graph *cudnn_graph_make(struct cudnn_place *place, const struct attention *a, enum dtype values,
                                     bool backward, struct muster_error *err);
void cudnn_graph_free(struct cudnn_graph *graph);         /* accepts NULL */
size_t cudnn_graph_work(const struct cudnn_graph *graph); /* bytes of workspace */

enum cudnn_tensor {
    CUDNN_Q,
    CUDNN_K,
    CUDNN_V,
    CUDNN_OUT,
    CUDNN_LSE,
    CUDNN_FORWARD_TENSORS,
    CUDNN_DOUT = CUDNN_FORWARD_TENSORS,
    CUDNN_DQ,
    CUDNN_DK,
    CUDNN_DV,
    CUDNN_BACKWARD_TENSORS
};
/* Enqueues a graph of a device that is here. tensors: by enum cudnn_tensor, as many as its direction has;
 * work: cudnn_graph_work bytes, aligned to 256. One thread at a time for a place. */
int cudnn_graph_run(struct cudnn_graph *graph, void *const *tensors, void *work, void *stream,
                    struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
