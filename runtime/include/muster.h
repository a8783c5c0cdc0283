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

/* ---- the world: who we are among how many ---- */

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
 * of them (none: a world of one), and LOCAL_RANK and LOCAL_WORLD_SIZE, as `muster run`, torchrun, or a script
 * around mpirun or srun sets them. With TORCHELASTIC_USE_AGENT_STORE=True the launcher serves the store at
 * MASTER_ADDR:MASTER_PORT; otherwise rank 0 serves it itself. options may be NULL. A variable that is missing
 * or wrong is MUSTER_E_INVALID and named. */
MUSTER_API struct muster_world *muster_world_open(const struct muster_world_options *options,
                                                  struct muster_error *err);
/* Leaves and sets *world to NULL. The rank that serves the store waits up to three seconds for the others. */
MUSTER_API void muster_world_close(struct muster_world **world);

MUSTER_API int muster_world_rank(const struct muster_world *world); /* 0..size-1 */
MUSTER_API int muster_world_size(const struct muster_world *world);
MUSTER_API int muster_world_local_rank(const struct muster_world *world); /* among the ranks of this node */
MUSTER_API int muster_world_local_size(const struct muster_world *world);
/* Collective: returns when every rank has called it as often as this one. Meant for start and end, not for
 * loops: it goes through the store. MUSTER_E_TIMEOUT says how many ranks are missing. */
MUSTER_API int muster_world_barrier(struct muster_world *world, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
