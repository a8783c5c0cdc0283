/* attention.c - the operations, and their pieces of work for the threads.
 *
 * Forward's piece is one head of queries of one sequence. Backward's is one head of keys with all heads of
 * queries that read it, so that nothing is summed across threads. Where these are fewer than the threads may
 * be (and more than one head of queries reads each), it is one head of queries, and parts of dk and dv are
 * added in order at the end. Which of the two depends on the shape alone. */
#include "kernels/cpu/attention/call.h"

#ifdef _OPENMP
#include <omp.h>
#endif

typedef void head_function(const struct call *c, int b, int h, float *slot);

size_t CPU(attention_work)(const struct attention *a, int backward)
{
    const size_t parts = backward ? CPU(attention_parts)(a) : 0;
    return (attention_slots(a) * CPU(attention_slot)(a) + parts) * sizeof(float);
}

/* The heads of queries of the pieces that thread `me` of `threads` has; a piece is `each` heads. */
static void share_of_heads(const struct call *c, int each, int me, int threads, head_function *fn)
{
    const int heads = c->a->heads;
    const int64_t pieces = (int64_t)c->a->B * heads / each;
    float *slot = c->slots + (size_t)me * CPU(attention_slot)(c->a);
    for (int64_t pair = pieces * me / threads * each; pair < pieces * (me + 1) / threads * each; pair++)
        fn(c, (int)(pair / heads), (int)(pair % heads), slot);
}

static void for_each_head(const struct call *c, int each, head_function *fn)
{
#ifdef _OPENMP
    const int slots = (int)attention_slots(c->a);
    const int64_t scores = (int64_t)c->a->B * c->a->heads * c->a->T * c->a->T;
    /* The team always has all threads, some perhaps without work: libgomp ends the threads that a smaller
     * team does not use and has to start them again for the next loop. */
#pragma omp parallel if (scores >= CPU_PARALLEL_MIN)
    {
        const int all = omp_get_num_threads(), threads = all < slots ? all : slots, me = omp_get_thread_num();
        if (me < threads)
            share_of_heads(c, each, me, threads, fn);
    }
#else
    share_of_heads(c, each, 0, 1, fn);
#endif
}

void CPU(attention_forward)(void *out, void *lse, const void *q, const void *k, const void *v,
                            const struct attention *a, void *work, void *stream)
{
    const struct call c = {.a = a, .q = q, .k = k, .v = v, .to = out, .lse_to = lse, .slots = work};
    (void)stream;
    for_each_head(&c, 1, CPU(attention_forward_head));
}

void CPU(attention_backward)(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream)
{
    float *slots = work;
    const struct call c = {.a = a,
                           .q = q,
                           .k = k,
                           .v = v,
                           .dout = dout,
                           .out = out,
                           .lse = lse,
                           .dq = dq,
                           .dk = dk,
                           .dv = dv,
                           .beta = beta,
                           .slots = slots,
                           .parts = slots + attention_slots(a) * CPU(attention_slot)(a)};
    (void)stream;
    for_each_head(&c, attention_has_parts(a) ? 1 : attention_group(a), CPU(attention_backward_head));
    if (attention_has_parts(a))
        CPU(attention_add_parts)(&c);
}
