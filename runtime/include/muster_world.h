/* muster_world.h - the ranks of a job: their numbers, figures and data exchanged between them, progress and
 * planned stops. Conventions: muster.h. */
#ifndef MUSTER_WORLD_H
#define MUSTER_WORLD_H

#include <stdint.h>

#include "proto/include/muster_error.h"

#define MUSTER_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0"; static. */
MUSTER_API const char *muster_version(void);
/* The library that multiplies matrices on CPUs, its version and its kernels: "OpenBLAS 0.3.21 ... SkylakeX
 * MAX_THREADS=64", as the numerics fingerprint has it; static. The first CPU device of a process, or the
 * first call of this, loads OpenBLAS and has it take the kernels of the processor's instruction set, where it
 * took older ones by itself. OPENBLAS_CORETYPE comes first, and a process whose other libraries use OpenBLAS
 * is left alone. "no OpenBLAS": it could not be loaded, and opening a CPU device reports why. */
MUSTER_API const char *muster_fit_processor(void);
/* One sentence where OpenBLAS, or oneDNN once loaded, computes below the processor: why, and the way out;
 * else "". Static. */
MUSTER_API const char *muster_processor_note(void);

/* The text of an error, for bindings that treat the struct as 512 bytes of memory; lives as long as err. */
MUSTER_API const char *muster_error_text(const struct muster_error *err);

/* ---- progress ---- */

/* Reports this rank's step, from 0, to the launcher; the first call arms hang detection for it (muster run
 * --hang-timeout), a negative step suspends that until the next call. Never blocks. Outside of muster run
 * it does nothing. -1 (MUSTER_E_INVALID) if MUSTER_HEARTBEAT_FD is not a pipe, (MUSTER_E_IO) if the
 * launcher does not read it. */
MUSTER_API int muster_heartbeat(int64_t step, struct muster_error *err);

/* Hands figures of this rank's training to the launcher, for `muster status` and its metrics: "loss",
 * "step_ms" and the other names of launcher/docs/heartbeat.md, at most MUSTER_FIGURES of them. A number that
 * is not finite is left out. Once a second is often enough. It is no heartbeat. Never blocks; errors as
 * above. */
#define MUSTER_FIGURES 16
MUSTER_API int muster_figures(const char *const *names, const double *values, int64_t count,
                              struct muster_error *err);

/* Reports to the launcher how a checkpoint with so many finished steps has ended, for `muster checkpoint`,
 * which waits for it: saved not 0: it is durable, and text has its place and how long it took; 0: there is
 * none, and text has the reason. A long text is cut. On every rank. It is no heartbeat. A trainer does not do
 * so by itself. Never blocks; errors as above. */
MUSTER_API int muster_checkpointed(int64_t step, int32_t saved, const char *text, struct muster_error *err);

/* ---- errors that a restart does not mend ---- */

struct muster_world;

/* Before this rank exits with a code other than 0 for an error that every restart would meet again, a wrong
 * setting, say: muster run then ends the job with that code and restarts nothing, if no other failure is the
 * cause. Returns 1 where this rank is to print the error, 0 where another rank has got 1 for the same one
 * ("rank R cannot go on: " before it makes no difference); world NULL, or a world of one: 1. Nothing else
 * follows from it: the caller prints and exits. */
MUSTER_API int muster_fatal(struct muster_world *world, const struct muster_error *error);

/* For ranks that fail alike: a launcher stops all ranks as soon as one has exited, and the rank that knows
 * the reason may not have printed it yet. Called after this rank has printed its error, or has left that to
 * another rank. Waits until every rank of the world has called this, for at most wait_ns nanoseconds; 0: this
 * rank is counted and waits for none. world NULL, or a world of one: returns at once. */
MUSTER_API void muster_fatal_meet(struct muster_world *world, int64_t wait_ns);

/* ---- planned stops ---- */

enum muster_coming {
    MUSTER_STOP_COMES,  /* the kind is not known to this library */
    MUSTER_NODES_JOIN,  /* the job goes on with more nodes */
    MUSTER_NODE_LEAVES, /* the job goes on without a node */
    MUSTER_JOB_STOPS
};

struct muster_notice {
    uint32_t size;             /* sizeof(struct muster_notice), set by the caller */
    int32_t coming;            /* enum muster_coming */
    int32_t round;             /* that ends */
    int32_t nodes, next_nodes; /* nodes in this round and the next; next_nodes 0: none, -1: not known */
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
 * on one. Steps of a trainer carry the question: a rank that has a notice sets "stop" (muster_trainer_set),
 * and every rank finds muster_result.stop set after the same step; without a trainer muster_world_reduce
 * with MUSTER_MAX answers it. launcher/docs/notice.md has it in Python. -1 as above. */
MUSTER_API int muster_notice(struct muster_notice *notice, struct muster_error *err);

/* ---- the world ---- */

/* struct muster_world: one rank's membership in a job. An object belongs to one thread at a time. */

struct muster_world_options {
    uint32_t size;      /* sizeof(struct muster_world_options) */
    int64_t timeout_ms; /* time-out to connect and to wait for other ranks; 0: 300,000 */
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
/* 1 where the number of nodes may change from round to round: MUSTER_NNODES, which `muster run` sets, is a
 * range, or PET_NNODES is, which torchrun reads. 0 also where the launcher does not say so: torchrun with the
 * flag alone. */
MUSTER_API int muster_world_elastic(const struct muster_world *world);
/* Collective: returns when every rank has called it as often as this one. Meant for start and end, not for
 * loops: it goes through the store. MUSTER_E_TIMEOUT gives the number of missing ranks. */
MUSTER_API int muster_world_barrier(struct muster_world *world, struct muster_error *err);

/* Collective: whether all ranks can go on, before any of them waits for another one's work. failed: not 0
 * where this rank cannot, with the reason in err. 0 if none failed; -1 with err unchanged on a rank that did,
 * at once, and with "rank R cannot go on: ..." on the others. world NULL: a world of one. */
MUSTER_API int muster_world_agree(struct muster_world *world, int32_t failed, struct muster_error *err);

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

/* Collective: splits world into worlds of the ranks with the same color; ranks count by key, then by their
 * rank in world. For muster_shard and muster_trainer inside a larger mesh. Uses world's store: close it
 * before world, and use both on one thread. NULL with err: as muster_world_reduce, and MUSTER_E_INVALID where
 * world is NULL. */
MUSTER_API struct muster_world *muster_world_split(struct muster_world *world, int32_t color, int32_t key,
                                                   struct muster_error *err);

/* For ranks without work, which wait until the others are done: a rank that has work calls muster_world_end
 * once, at its end; muster_world_ended is 1 on every rank from then on, and 0 if that has not happened within
 * wait_ns nanoseconds. Not collective. world NULL, or a world of one: 1. -1: the store has gone. */
MUSTER_API int muster_world_end(struct muster_world *world, struct muster_error *err);
MUSTER_API int muster_world_ended(struct muster_world *world, int64_t wait_ns, struct muster_error *err);

/* ---- ranks that stay when others are lost ---- */

/* Registers this rank with `muster run`: when a rank of the job is lost, a thread of the library ends the
 * collectives of this world, and of the trainers that stay in it (muster_trainer_stay), so that their calls
 * fail, and informs the launcher that this rank can stay. 1; 0 where no launcher speaks this, in a part of a
 * world, or where rank 0 serves the store: ranks are then started anew as without it. After an error the
 * program may go on, and is started anew likewise. launcher/docs/regroup.md has the protocol. */
MUSTER_API int muster_world_stay(struct muster_world *world, struct muster_error *err);
/* The same of a rank that has no state of its own, as one that waits until the others have ended: it stays in
 * every case, and muster_world_rejoin may give it any rank of a world of any size. */
MUSTER_API int muster_world_stay_spare(struct muster_world *world, struct muster_error *err);
/* After a call that failed: waits for the launcher's word, for at most wait_ns nanoseconds, and then for this
 * rank's place in the next round, which has the rank and size of before (but after
 * muster_world_stay_spare and muster_trainer_stay_anywhere). The world is of that round from then
 * on; its barriers, agreements and collectives count anew, as in ranks that were started for it. 1: done; 0:
 * no word came, the error was another one, and nothing has changed; -1: the launcher or its store has gone,
 * and so has the world. A rank that is not registered gets 0 at once. */
MUSTER_API int muster_world_rejoin(struct muster_world *world, int64_t wait_ns, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
