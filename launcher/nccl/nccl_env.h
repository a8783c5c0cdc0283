/* nccl_env.h - NCCL's environment on this machine: the sources read before anything starts, and the
 * variables of the workers of a world.
 *
 * nccl_env_read reads the machine once; nccl_env_decide (pure but for the kernel's route to the master,
 * which is looked up) may be called for each world. Nothing is read if no decision is possible: one node
 * without GPUs and without a policy. */
#ifndef MUSTER_LAUNCHER_NCCL_NCCL_ENV_H
#define MUSTER_LAUNCHER_NCCL_NCCL_ENV_H

#include "launcher/config/config.h"
#include "launcher/host/machine.h"
#include "proto/base/log.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/files/policy_read.h"

struct nccl_env {
    bool looked;   /* machine was read; else there are no decisions */
    bool replayed; /* it is another's */
    enum tune_mode mode;
    struct description machine;
    struct policy policy; /* empty without a file */
    struct decision_list decisions;
    char *unfit; /* why this node must not join (--pre-flight); NULL: it may */
};

/* The properties of a world when its workers are to start. */
struct nccl_env_place {
    int nnodes;
    const char *master_address; /* numeric; NULL unknown */
    bool here;                  /* it is this node's address for the others */
    const char *log_dir;        /* NULL: none */
};

/* Reads the policy file, and this machine (or the file that MUSTER_DESCRIPTION names) if a decision is
 * possible; always: even if none is, for display. Blocks: NVML for some seconds if there are GPUs, unless
 * nvml was queried before; with --pre-flight all sources of muster doctor. For a program that still has
 * one thread. MUSTER_E_INVALID or the file system's error if a file cannot be used. tune needs no
 * initialisation; nccl_env_free on success and on failure. */
int nccl_env_read(const struct run_config *config, char *const *environment, bool always,
                  struct nvml_probe *nvml, struct nccl_env *tune, struct muster_error *err);
/* Accepts a zeroed struct. */
void nccl_env_free(struct nccl_env *tune);

/* tune->decisions anew. */
int nccl_env_decide(struct nccl_env *tune, const struct nccl_env_place *place, struct muster_error *err);
/* The world as far as it is known before the node joins: all nodes that may join, an address that needs no
 * look-up. */
struct nccl_env_place nccl_env_place_before(const struct run_config *config);
/* MUSTER_E_INVALID if the policy forbids a variable that is set: the job does not start. */
int nccl_env_check(const struct nccl_env *tune, struct muster_error *err);
/* inherited with all variables that the decisions set, NULL-terminated, in fresh memory
 * (text_list_free_items). */
char **nccl_env_environment(const struct nccl_env *tune, char *const *inherited, struct muster_error *err);
/* {"decisions": [...], "description": {...}}, appended. */
int nccl_env_json(const struct nccl_env *tune, struct buffer *out);

/* --- --pre-flight ---
 *
 * Pure but for the log: the checks of muster doctor before this node joins. */

/* Checks tune->machine if configured, and logs each row that is not fine, with its remedy; they are warnings
 * of config, too, for the job's page. tune->unfit becomes the reason why the node must not join, NULL if it
 * may. */
int pre_flight_examine(struct run_config *config, const struct log_sink *log, struct nccl_env *tune,
                       struct muster_error *err);

#endif
