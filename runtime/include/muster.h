/* muster.h - the public API of libmuster.
 *
 * C and C++, and by ctypes from Python: opaque objects, plain structs that begin with their own size, one
 * `struct muster_error` as the last parameter (NULL is allowed). Functions return 0 or a pointer, and -1 or
 * NULL on failure. There are no globals: a process may hold several worlds, also as ranks of one job.
 * Functions that destroy take the address of a pointer or the object, as they say, and accept NULL. */
#ifndef MUSTER_H
#define MUSTER_H

#include <stdint.h>

#include "proto/include/muster_error.h"

#define MUSTER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0"; static. */
MUSTER_API const char *muster_version(void);

/* ---- progress ---- */

/* Reports this rank's step, from 0, to the launcher; the first call arms hang detection for it (muster run
 * --hang-timeout), a negative step suspends that until the next call. Never blocks. Outside of muster run
 * it does nothing. -1 (MUSTER_E_INVALID) if MUSTER_HEARTBEAT_FD is not a pipe, (MUSTER_E_IO) if the
 * launcher does not read it. */
MUSTER_API int muster_heartbeat(int64_t step, struct muster_error *err);

/* ---- planned stops ---- */

enum muster_coming {
    MUSTER_STOP_COMES,  /* of a kind that this library does not know */
    MUSTER_NODES_JOIN,  /* the job goes on with more nodes */
    MUSTER_NODE_LEAVES, /* the job goes on without a node */
    MUSTER_JOB_STOPS
};

struct muster_notice {
    uint32_t size;             /* sizeof(struct muster_notice), set by the caller */
    int32_t coming;            /* enum muster_coming */
    int32_t round;             /* that ends */
    int32_t nodes, next_nodes; /* of this round and the next; next_nodes 0: none, -1: not known */
    int32_t reserved;
    int64_t deadline_ns; /* CLOCK_MONOTONIC: ranks still running then get SIGTERM */
    double left_s;       /* until then, from this call */
};

/* Registers this rank for stop notices: instead of a SIGTERM it gets time to finish its step, save and
 * exit. All ranks do so, or none. 1; 0 outside of muster run. -1 (MUSTER_E_INVALID) if MUSTER_NOTICE_FD is
 * not a socket, (MUSTER_E_IO) if the launcher does not read it. */
MUSTER_API int muster_notice_listen(struct muster_error *err);
/* Whether a stop was announced to this rank: 1, and so from then on; 0 while there is none. notice may be
 * NULL. Never blocks. Ranks receive the notice at different steps: before they act on it they must agree
 * on one. Steps of a trainer carry the question: a rank that has a notice sets muster_step.stop, and every
 * rank finds muster_step_result.stop set after the same step; without a trainer muster_world_reduce with
 * MUSTER_MAX answers it. launcher/docs/notice.md has it in Python. -1 as above. */
MUSTER_API int muster_notice(struct muster_notice *notice, struct muster_error *err);

/* ---- the world ---- */

/* One rank's membership in a job. An object belongs to one thread at a time. */
struct muster_world;

struct muster_world_options {
    uint32_t size;      /* sizeof(struct muster_world_options) */
    int64_t timeout_ms; /* of connecting and of waiting for other ranks; 0: 300,000 */
    /* Where variables are read from; NULL: the process's environment. Ranks that are threads of one process
     * give each its own. The texts need to live until muster_world_open returns. */
    const char *(*get_environment)(void *context, const char *name);
    void *context;
};

/* Joins the world that the environment describes: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, all or none
 * of them, and LOCAL_RANK and LOCAL_WORLD_SIZE, as `muster run` and torchrun set them. Without RANK and
 * WORLD_SIZE the variables of Open MPI, MVAPICH2, MPICH, Slurm's srun or another PMI count; MASTER_ADDR and
 * MASTER_PORT, where not set, are then derived if all ranks can derive the same. Without any of them: a world
 * of one. With TORCHELASTIC_USE_AGENT_STORE=True the launcher serves the store at MASTER_ADDR:MASTER_PORT;
 * otherwise rank 0 serves it itself. options may be NULL. A variable that is missing or wrong is
 * MUSTER_E_INVALID and named. */
MUSTER_API struct muster_world *muster_world_open(const struct muster_world_options *options,
                                                  struct muster_error *err);
/* Leaves and sets *world to NULL. The rank that serves the store waits up to a second for the others. */
MUSTER_API void muster_world_close(struct muster_world **world);

MUSTER_API int muster_world_rank(const struct muster_world *world); /* 0..size-1 */
MUSTER_API int muster_world_size(const struct muster_world *world);
MUSTER_API int muster_world_local_rank(const struct muster_world *world); /* among the ranks of this node */
MUSTER_API int muster_world_local_size(const struct muster_world *world);
/* Collective: returns when every rank has called it as often as this one. Meant for start and end, not for
 * loops: it goes through the store. MUSTER_E_TIMEOUT gives the number of missing ranks. */
MUSTER_API int muster_world_barrier(struct muster_world *world, struct muster_error *err);

/* What muster_world_reduce makes of the ranks' values. */
enum muster_reduction { MUSTER_SUM, MUSTER_MAX };

/* Collective: every rank gets the sum or the maximum of all ranks' values, (count), in place and with the
 * same bits; sums are made in the order of the ranks. count may be 0. For figures such as a loss or a count,
 * not for tensors. world NULL: a world of one, where the values stay. MUSTER_E_TIMEOUT (of muster_world_open)
 * names the ranks that are missing, MUSTER_E_PEER a rank that has gone or whose call differs; after them
 * every later call fails. */
MUSTER_API int muster_world_reduce(struct muster_world *world, double *values, int64_t count,
                                   int32_t reduction, struct muster_error *err);
/* Collective: data of the rank root, (bytes), comes to all ranks; bytes is the same everywhere. Errors and
 * world NULL as above. */
MUSTER_API int muster_world_broadcast(struct muster_world *world, void *data, int64_t bytes, int32_t root,
                                      struct muster_error *err);

/* ---- training a GPT ----
 *
 * A trainer is one rank's share of a training run. All ranks of a world create theirs with equal arguments
 * and make the same calls in the same order; every call blocks until its work is done. Calls on one trainer
 * come from one thread at a time. */

struct muster_trainer;

/* The GPT-2 architecture; the output weights are the token embedding. */
struct muster_gpt {
    uint32_t size;                   /* sizeof(struct muster_gpt) */
    int32_t layers, channels, heads; /* channels is a multiple of heads */
    int32_t vocabulary;
    int32_t positions; /* longest sequence */
};

/* Which parts of the training state are sharded. */
enum muster_strategy {
    MUSTER_NO_SHARD,      /* none: gradients are averaged */
    MUSTER_SHARD_OPTIM,   /* optimizer state */
    MUSTER_SHARD_GRAD_OP, /* and gradients; parameters are gathered once a step */
    MUSTER_FULL_SHARD,    /* and parameters: gathered for forward and again for backward */
    MUSTER_HYBRID_SHARD   /* FULL_SHARD inside each replica, gradients averaged between `replicas` */
};

struct muster_training {
    uint32_t size;                /* sizeof(struct muster_training); muster_training_defaults sets it */
    int32_t strategy;             /* enum muster_strategy */
    int32_t replicas;             /* of MUSTER_HYBRID_SHARD: divides the world; 0: one a node; else 0 or 1 */
    int32_t sequences, positions; /* of a micro-batch on one rank; positions at most the model's */
    int32_t micro_batches;        /* of one step on one rank */
    int32_t prefetch;             /* gathers in flight ahead of compute; 0: none */
    int32_t threads;              /* of compute; 0: OMP_NUM_THREADS, else cores / ranks of this node */
    int32_t clip;                 /* 0: steps never clip, and compute no gradient norm */
    int64_t group_bytes;          /* parameters gathered as one; 0: chosen */
    int64_t memory_limit;         /* limit of this rank's plan in bytes; 0: the machine's free memory */
    int64_t timeout_ms;           /* time-out of a collective */
    uint64_t seed;                /* of the initial parameters: the same in any world */
};
/* FULL_SHARD, one sequence of the model's positions, prefetch 2, clipping, 10 minutes, seed 0. */
MUSTER_API void muster_training_defaults(struct muster_training *training, const struct muster_gpt *model);

/* The values of one optimizer step (AdamW; decay on tensors with two dimensions only). */
struct muster_step {
    uint32_t size; /* sizeof(struct muster_step), set by muster_step_defaults */
    int32_t stop;  /* not 0: this rank asks all to stop after this step */
    double learning_rate, weight_decay, beta1, beta2, epsilon;
    double clip_norm;      /* of the gradient over all ranks; 0: not clipped */
    int64_t global_tokens; /* targets that count in the whole step over all ranks; 0: all of them */
};
/* 3e-4, 0.1, 0.9, 0.95, 1e-8, clip 1. */
MUSTER_API void muster_step_defaults(struct muster_step *step);

struct muster_step_result {
    uint32_t size;   /* sizeof(struct muster_step_result), set by the caller */
    int32_t skipped; /* not 0: the norm was not finite and the parameters are as before */
    int32_t stop;    /* not 0: a rank asked to stop; the same on every rank */
    int32_t reserved;
    double loss;        /* mean over the step's tokens of all ranks */
    double grad_norm;   /* before clipping */
    int64_t step_ns;    /* wall time */
    int64_t comm_ns;    /* time that collectives took, waiting for late ranks included, added up */
    int64_t exposed_ns; /* of it, time in which compute was stalled; never more than comm_ns */
};

/* Collective. world NULL: a world of one. It must stay open while the trainer is being created. NULL on
 * error; a model or batch that does not fit into memory is rejected before anything is allocated, and a
 * failure of one rank is an error on all of them. */
MUSTER_API struct muster_trainer *muster_trainer_create(struct muster_world *world,
                                                        const struct muster_gpt *model,
                                                        const struct muster_training *training,
                                                        struct muster_error *err);
/* Accepts NULL. */
MUSTER_API void muster_trainer_destroy(struct muster_trainer *trainer);

/* One optimizer step. tokens, targets: (micro_batches, sequences, positions) of this rank, in [0,
 * vocabulary); a target of -1 does not count. result may be NULL. After an error of a collective every
 * later call returns that error. */
MUSTER_API int muster_trainer_step(struct muster_trainer *trainer, const int32_t *tokens,
                                   const int32_t *targets, const struct muster_step *step,
                                   struct muster_step_result *result, struct muster_error *err);
/* Mean loss of one micro-batch, (sequences, positions), of this rank; changes nothing. Collective. */
MUSTER_API int muster_trainer_evaluate(struct muster_trainer *trainer, const int32_t *tokens,
                                       const int32_t *targets, double *loss, struct muster_error *err);

/* Parameters have the names of Hugging Face's GPT-2 and are numbered from 0. Their products' weights are
 * (out, in), as nn.Linear's; a saved file has them transposed. The name lives as long as the trainer; NULL, 0
 * and -1 where there is no such parameter. */
MUSTER_API int muster_trainer_parameters(const struct muster_trainer *trainer);
MUSTER_API const char *muster_trainer_parameter_name(const struct muster_trainer *trainer, int parameter);
MUSTER_API int64_t muster_trainer_parameter_elements(const struct muster_trainer *trainer, int parameter);
/* Fills shape[0..1] (1 for what is not there) and returns the number of dimensions. */
MUSTER_API int muster_trainer_parameter_shape(const struct muster_trainer *trainer, int parameter,
                                              int64_t shape[2]);
/* Collective. values: all elements, on every rank; a rank that does not need them may pass NULL to get. */
MUSTER_API int muster_trainer_get_parameter(struct muster_trainer *trainer, int parameter, float *values,
                                            struct muster_error *err);
MUSTER_API int muster_trainer_set_parameter(struct muster_trainer *trainer, int parameter,
                                            const float *values, struct muster_error *err);

/* Collective. Rank 0 writes all parameters as one safetensors file, beside path and then renamed over it;
 * only rank 0 gets an error of the file. It is what Hugging Face's GPT-2 reads: named model.safetensors
 * beside a config.json, transformers' from_pretrained loads it. The weights of a block's products are (in,
 * out) in it, as that model's Conv1D has them. The metadata describes what the file holds ("architecture",
 * "linear_layout") and, in "numerics", everything besides data, seed and step values that influences its last
 * bits. */
MUSTER_API int muster_trainer_save(struct muster_trainer *trainer, const char *path,
                                   struct muster_error *err);

/* Bytes of this rank's plan: all memory that the trainer will ever hold. */
MUSTER_API int64_t muster_trainer_planned_bytes(const struct muster_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
