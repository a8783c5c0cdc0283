/* call.h - inside kernels/cpu/attention: one call, and the heads of queries that are its pieces. The cut into
 * pieces is the same for values of float (of_float.c) and of bf16 (of_bf16.c). */
#ifndef MUSTER_KERNELS_CPU_ATTENTION_CALL_H
#define MUSTER_KERNELS_CPU_ATTENTION_CALL_H

#include "kernels/cpu/attention/lanes.h"
#include "kernels/cpu/cpu.h"

#ifdef CPU_VARIANT

/* Forward has dq NULL; out and lse are then its results. */
struct call {
    const struct attention *a;
    const VALUE *q, *k, *v, *dout, *out;
    const float *lse;
    VALUE *dq, *dk, *dv, *to;
    float *lse_to;
    const int *beta;
    float *slots, *parts; /* in `work`: a slot for each thread, then parts of dk and dv */
};

/* Whether heads of queries of one group have parts of dk and dv of their own: heads of keys are fewer than
 * the threads may be. */
static inline bool attention_has_parts(const struct attention *a)
{
    return attention_group(a) > 1 && (int64_t)a->B * a->kv_heads < ATTENTION_SLOTS;
}

/* Floats of the slot of a thread, and of all parts. */
size_t CPU(attention_slot)(const struct attention *a);
size_t CPU(attention_parts)(const struct attention *a);
/* Head h of queries of sequence b, in the slot of the calling thread. Without parts the heads of a group come
 * in order, on one thread. */
void CPU(attention_forward_head)(const struct call *c, int b, int h, float *slot);
void CPU(attention_backward_head)(const struct call *c, int b, int h, float *slot);
/* Parts to dk and dv, after all heads. */
void CPU(attention_add_parts)(const struct call *c);

#endif
#endif
