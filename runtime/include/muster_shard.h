/* muster_shard.h - parameters, gradients and optimizer state sharded over the ranks of a world, for a program
 * that computes by itself.
 *
 * Parameters are registered in param groups. Of each group a rank keeps 1/size; `gather` gives all of it at
 * an address that stays the same for the life of the object, `release` takes the memory at that address away
 * again, `reduce` averages gradients over the ranks, and `step` updates this rank's part. The order of the
 * gathers of a pass is recorded and the next ones are begun ahead of their use.
 *
 *     muster_shard_create, then for each group: muster_shard_group, muster_shard_parameter ...
 *     muster_shard_ready                                  the ranks compare their groups; memory
 *     for each group: gather, write the initial values, store, release
 *     each step:  begin
 *                 forward:  for each group: gather, compute, release
 *                 backward: for each group: gather, compute, release, reduce
 *                 step
 *
 * All ranks make the same calls in the same order, from one thread at a time; an order that differs is an
 * error that names both groups. Every wait ends with the time-out at the latest, and a rank that has gone is
 * an error on all others. After an error of a collective every later call returns that error. Conventions as
 * in muster.h. */
#ifndef MUSTER_SHARD_H
#define MUSTER_SHARD_H

#include "muster_world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct muster_shard;

enum muster_shard_dtype {
    MUSTER_SHARD_SAME = -1, /* as dtype for param_dtype, as param_dtype for reduce_dtype */
    MUSTER_SHARD_F32,
    MUSTER_SHARD_F64,
    MUSTER_SHARD_BF16, /* with a dtype of F32 only, as F16 */
    MUSTER_SHARD_F16,  /* losses are not scaled: that is the caller's */
};

enum muster_shard_optimizer {
    MUSTER_SHARD_NONE,  /* the caller updates muster_shard_local(MUSTER_LOCAL_PARAMETERS) itself */
    MUSTER_SHARD_SGD,   /* as torch.optim.SGD */
    MUSTER_SHARD_ADAM,  /* as torch.optim.Adam */
    MUSTER_SHARD_ADAMW, /* as torch.optim.AdamW */
};

struct muster_shard_options {
    uint32_t size;     /* sizeof(struct muster_shard_options) */
    int32_t dtype;     /* enum muster_shard_dtype: of masters, reduced gradients and optimizer state */
    int32_t optimizer; /* enum muster_shard_optimizer */
    int32_t momentum;  /* not 0: SGD keeps a momentum */
    int32_t prefetch;  /* gathers begun ahead of their use; 0: none */
    int32_t threads;   /* threads of the optimizer; 0: OMP_NUM_THREADS, else cores / ranks of this node */
    /* Groups that may hold gradients before they are reduced, for each class of sizes; -1: all of them, for
     * gradients that are added up over passes before they are reduced. */
    int32_t gradient_slots;
    /* Types of gathered parameters, and of gradients in the caller's memory and in transit. The masters,
     * which the optimizer updates, stay F32, and are rounded once for the gathers. A sum over ranks is formed
     * in float, rounded once to reduce_dtype, and added to earlier sums in F32. */
    int32_t param_dtype, reduce_dtype;
    /* HYBRID_SHARD: the ranks are cut into so many runs of neighbours, each of which keeps all parameters in
     * parts: gathers and scattered sums stay in a run. The sums of each rank are then averaged over the runs
     * (rounded to reduce_dtype twice). It divides the number of ranks; as many as ranks: nothing is cut. 0 or
     * 1: one run of all ranks; -1: one for each node, if all nodes have as many ranks. */
    int32_t replicas;
    int64_t timeout_ms; /* time-out of a collective; 0: as the world */
};
/* F32, AdamW, prefetch 1, 3 gradient slots, SAME. */
MUSTER_API void muster_shard_defaults(struct muster_shard_options *options);

/* world NULL: a world of one. It must stay open while the object lives. Not collective. */
MUSTER_API struct muster_shard *muster_shard_create(struct muster_world *world,
                                                    const struct muster_shard_options *options,
                                                    struct muster_error *err);
/* Accepts NULL. */
MUSTER_API void muster_shard_destroy(struct muster_shard *shard);

/* ---- registration: the same on every rank ---- */

/* Adds a group and returns its index, from 0. frozen: its parameters get no gradients. */
MUSTER_API int muster_shard_group(struct muster_shard *shard, const char *name, int frozen,
                                  struct muster_error *err);
/* Adds a parameter to the last group and returns its index, from 0 over all groups. parameter_class, 0 to 7,
 * selects its learning rate and decay. */
MUSTER_API int muster_shard_parameter(struct muster_shard *shard, const char *name, int64_t elements,
                                      int parameter_class, struct muster_error *err);
/* Collective: compares the registrations, allocates, connects. Parameters are 0 until they are stored. A
 * failure of one rank is an error on all, MUSTER_E_REFUSED names the first group that differs. */
MUSTER_API int muster_shard_ready(struct muster_shard *shard, struct muster_error *err);

/* ---- parameters ---- */

/* Where all elements of a parameter are while its group is gathered: an address that never changes. Between
 * `release` and `gather` it has no memory, and an access is a segmentation fault. In a world of one it is the
 * parameter itself and always there. NULL before muster_shard_ready or for a wrong index. */
MUSTER_API void *muster_shard_address(const struct muster_shard *shard, int parameter);

/* From now on the elements of a released parameter are NaN, and writes to them are lost. An access
 * calls notify(argument), inside the signal handler (may be NULL). Installs a handler of SIGSEGV for the
 * process; faults elsewhere go to the handler before it. Nothing to do in a world of one. */
MUSTER_API int muster_shard_guard(struct muster_shard *shard, int (*notify)(int argument), int argument,
                                  struct muster_error *err);
/* With a guard: the parameter of the first such access since the last call, or -1. Results since then may be
 * wrong. */
MUSTER_API int muster_shard_touched(struct muster_shard *shard);

/* Begins a pass: a run through the groups with an order of its own, such as forward and backward, or an
 * evaluation. pass: 0 to 3, one number for each kind of pass; its order is recorded the first time and again
 * when it has changed. Without this call `step` separates passes. */
MUSTER_API int muster_shard_begin(struct muster_shard *shard, int pass, struct muster_error *err);
/* Collective. Returns when all parameters of the group are at their addresses, of param_dtype; they may be
 * read until `release`. May be called again before that: there must be as many releases. */
MUSTER_API int muster_shard_gather(struct muster_shard *shard, int group, struct muster_error *err);
MUSTER_API int muster_shard_release(struct muster_shard *shard, int group, struct muster_error *err);
/* Writes back a gathered group: its parameters become the values of rank root at their addresses
 * (collective), or with root -1 each rank's values at the addresses of its own part (equal on replicas).
 * Masters become these values too: with 16 bits use muster_shard_write for values of more bits. Not to be
 * mixed with prefetched gathers: outside of passes. */
MUSTER_API int muster_shard_store(struct muster_shard *shard, int group, int root, struct muster_error *err);

/* ---- gradients ---- */

/* Where the gradient of a parameter, of reduce_dtype, may be written, so that `reduce` copies nothing: valid
 * until the group is reduced or discarded. The first call takes a gradient slot and waits for an
 * earlier reduction if all are in use; the contents are not defined. NULL on error; frozen groups have none.
 */
MUSTER_API void *muster_shard_gradient(struct muster_shard *shard, int parameter, struct muster_error *err);
/* Collective: averages the gradients of a group over the ranks and adds them to the gradients reduced since
 * the last step; returns when it has begun. gradients: one address for each parameter of the group, in the
 * order of registration, of reduce_dtype. NULL: none in this pass (0 in the average). Another address than
 * muster_shard_gradient's is copied before the function returns. A parameter without gradient on all ranks is
 * not changed by `step`.
 */
MUSTER_API int muster_shard_reduce(struct muster_shard *shard, int group, const void *const *gradients,
                                   struct muster_error *err);
/* Forgets gradients that were written or reduced since the last step. */
MUSTER_API int muster_shard_discard(struct muster_shard *shard, struct muster_error *err);

/* ---- the step ---- */

enum { MUSTER_SHARD_CLASSES = 8 };

struct muster_shard_step {
    uint32_t size;                              /* set by muster_shard_step_defaults */
    int32_t norm;                               /* not 0: the norm is computed, clipped or not */
    double learning_rate[MUSTER_SHARD_CLASSES]; /* for each parameter class: at least 0 */
    double weight_decay[MUSTER_SHARD_CLASSES];  /* at least 0 */
    double beta1, beta2, epsilon;               /* for Adam and AdamW: betas from 0 to below 1 */
    double momentum, dampening;                 /* for SGD with momentum */
    int32_t nesterov;
    int32_t reserved;
    double clip_norm; /* limit for the norm over all gradients and ranks; 0: not clipped */
};
/* Every class 1e-3 and decay 0.01; 0.9, 0.999, 1e-8; 0, 0, 0; not clipped: torch.optim.AdamW's. */
MUSTER_API void muster_shard_step_defaults(struct muster_shard_step *step);

struct muster_shard_result {
    uint32_t size;    /* sizeof(struct muster_shard_result), set by the caller */
    int32_t skipped;  /* not 0: clipping, and the norm was not finite; parameters are as before */
    double grad_norm; /* before clipping; 0 where it was not asked for */
};
/* Collective: updates every trainable group from the gradients reduced since the last step, and forgets them.
 * No group may be gathered or hold gradients that were not reduced. result may be NULL. MUSTER_E_INVALID: a
 * value of the step that its optimizer uses is outside of its range; nothing was updated. */
MUSTER_API int muster_shard_step(struct muster_shard *shard, const struct muster_shard_step *step,
                                 struct muster_shard_result *result, struct muster_error *err);
/* Collective: the norm of all reduced gradients over all ranks; changes nothing. */
MUSTER_API int muster_shard_grad_norm(struct muster_shard *shard, double *norm, struct muster_error *err);

/* ---- this rank's part ---- */

enum muster_shard_local {
    MUSTER_LOCAL_PARAMETERS,
    MUSTER_LOCAL_GRADIENTS, /* reduced since the last step; waits for the reduction */
    MUSTER_LOCAL_MOMENT1,   /* Adam, AdamW: first moment; SGD: momentum */
    MUSTER_LOCAL_MOMENT2,
};
/* Address of this rank's elements of a parameter: *elements of them, from element *first of it on. NULL with
 * *elements 0 where this rank has none of it, or there is nothing of this kind. */
MUSTER_API void *muster_shard_part(struct muster_shard *shard, int parameter, int local, int64_t *first,
                                   int64_t *elements);

/* ---- whole parameters, to save and load a run, in a world of any size ---- */

/* Collective: all elements of a parameter (local: its master, or a moment), of dtype, to `values` of every
 * rank. */
MUSTER_API int muster_shard_read(struct muster_shard *shard, int parameter, int local, void *values,
                                 struct muster_error *err);
/* Collective, outside of passes: they become the elements of rank root at `values`; other ranks give memory
 * of the same size, which is overwritten. */
MUSTER_API int muster_shard_write(struct muster_shard *shard, int parameter, int local, void *values,
                                  int root, struct muster_error *err);
/* Steps that have updated a parameter, which Adam's bias correction counts; set: unless -1, the new number,
 * on every rank alike. Returns the number, -1 for a wrong index. */
MUSTER_API int64_t muster_shard_updates(struct muster_shard *shard, int parameter, int64_t set);

struct muster_shard_stats {
    uint32_t size;       /* sizeof(struct muster_shard_stats), set by the caller */
    int32_t slots;       /* memory for gathered groups: how many groups fit at once now */
    int64_t shard_bytes; /* this rank's parameters, reduced gradients and optimizer state */
    int64_t slot_bytes;  /* largest memory of gathered groups so far */
    int64_t grad_bytes;  /* largest memory of unreduced gradients so far */
    int64_t gathers;     /* number so far */
    int64_t prefetched;  /* gathers that were begun ahead of their use */
    int64_t waited_ns;   /* the caller's waits for gathers and reductions */
    int64_t comm_ns;     /* time that collectives took, waiting for late ranks included */
};
MUSTER_API int muster_shard_statistics(const struct muster_shard *shard, struct muster_shard_stats *stats,
                                       struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
