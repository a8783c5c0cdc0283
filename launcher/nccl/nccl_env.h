/* nccl_env.h - NCCL's environment on this machine: what is read of it before anything starts, and what the
 * workers of a world get.
 *
 * nccl_env_read looks at the machine once; nccl_env_decide (pure but for the kernel's route to the master,
 * which is looked up) may be called for each world. Nothing is read where nothing can matter: one node
 * without GPUs and without a policy. */
#ifndef MUSTER_LAUNCHER_NCCL_NCCL_ENV_H
#define MUSTER_LAUNCHER_NCCL_NCCL_ENV_H

#include "launcher/config/config.h"
#include "launcher/host/nvml_probe.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/decide/policy.h"

struct nccl_env {
    bool looked;   /* machine was read; else nothing is ever decided */
    bool replayed; /* it is another's */
    enum tune_mode mode;
    struct description machine;
    struct policy policy; /* empty where there is no file */
    struct decision_list decisions;
    char *unfit; /* why this node must not join (pre_flight.h); NULL: it may */
};

/* What is known of a world when its workers are to start. */
struct nccl_env_place {
    int nnodes;
    const char *master_address; /* numeric; NULL unknown */
    bool here;                  /* it is this node's, as the others dial it */
    const char *log_dir;        /* NULL: none */
};

/* Reads the policy file, and this machine (or the file that MUSTER_DESCRIPTION names) where something can
 * matter; always: also where nothing can, for a person who asks. Blocks: NVML for some seconds where there
 * are GPUs, unless nvml was asked before; with --pre-flight all that muster doctor asks. For a program that
 * still has one thread. MUSTER_E_INVALID or what the file system says where a file cannot be used. tune needs
 * no initialisation; nccl_env_free on success and on failure. */
int nccl_env_read(const struct run_config *config, char *const *environment, bool always,
                  struct nvml_probe *nvml, struct nccl_env *tune, struct muster_error *err);
/* Accepts one that is zeroed. */
void nccl_env_free(struct nccl_env *tune);

/* tune->decisions anew. */
int nccl_env_decide(struct nccl_env *tune, const struct nccl_env_place *place, struct muster_error *err);
/* The place as far as it is known before the node joins: every node that may come, an address that needs no
 * look-up. */
struct nccl_env_place nccl_env_place_before(const struct run_config *config);
/* MUSTER_E_INVALID where the policy forbids what is set: the job does not start. */
int nccl_env_check(const struct nccl_env *tune, struct muster_error *err);
/* inherited with all that is decided to be set, NULL-terminated, in fresh memory (text_list_free_items). */
char **nccl_env_environment(const struct nccl_env *tune, char *const *inherited, struct muster_error *err);
/* {"decisions": [...], "description": {...}}, appended. */
int nccl_env_json(const struct nccl_env *tune, struct buffer *out);

#endif
