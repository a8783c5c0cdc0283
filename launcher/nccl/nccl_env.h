/* tune.h - NCCL's environment on this machine: what is read of it before anything starts, and what the
 * workers of a world get.
 *
 * tune_read looks at the machine once; tune_decide (pure but for the kernel's route to the master, which is
 * looked up) may be called for each world. Nothing is read where nothing can matter: one node without GPUs
 * and without a policy. */
#ifndef MUSTER_LAUNCHER_TUNE_H
#define MUSTER_LAUNCHER_TUNE_H

#include "launcher/config.h"
#include "runtime/nccl/decide.h"
#include "runtime/nccl/policy.h"

struct tune {
    bool looked;   /* machine was read; else nothing is ever decided */
    bool replayed; /* it is another's */
    enum tune_mode mode;
    struct description machine;
    struct policy policy; /* empty where there is no file */
    struct decision_list decisions;
    char *unfit; /* why this node must not join (pre_flight.h); NULL: it may */
};

/* What is known of a world when its workers are to start. */
struct tune_place {
    int nnodes;
    const char *master_address; /* numeric; NULL unknown */
    bool here;                  /* it is this node's, as the others dial it */
    const char *log_dir;        /* NULL: none */
};

/* Reads the policy file, and this machine (or the file that MUSTER_DESCRIPTION names) where something can
 * matter; always: also where nothing can, for a person who asks. Blocks: NVML for some seconds where there
 * are GPUs; with --pre-flight all that muster doctor asks. For a program that still has one thread. MUSTER_E_INVALID or what the file system says where a
 * file cannot be used. tune needs no initialisation; tune_free on success and on failure. */
int tune_read(const struct run_config *config, char *const *environment, bool always, struct tune *tune,
              struct muster_error *err);
/* Accepts one that is zeroed. */
void tune_free(struct tune *tune);

/* tune->decisions anew. */
int tune_decide(struct tune *tune, const struct tune_place *place, struct muster_error *err);
/* The place as far as it is known before the node joins: every node that may come, an address that needs no
 * look-up. */
struct tune_place tune_place_before(const struct run_config *config);
/* MUSTER_E_INVALID where the policy forbids what is set: the job does not start. */
int tune_check(const struct tune *tune, struct muster_error *err);
/* inherited with all that is decided to be set, NULL-terminated, in fresh memory (text_list_free_items). */
char **tune_environment(const struct tune *tune, char *const *inherited, struct muster_error *err);
/* {"decisions": [...], "description": {...}}, appended. */
int tune_json(const struct tune *tune, struct buffer *out);

#endif
