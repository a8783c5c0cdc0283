/* reader.h - fills a description from the machine: /sys, /proc, rtnetlink, the environment and NCCL's files.
 *
 * Everything that can be read without blocking is read here, in about a millisecond; NVML is asked by
 * reader_gpus, which can block and belongs into a process of its own. Files are found below a root directory,
 * so that tests bring their own /sys and /proc. */
#ifndef MUSTER_NCCL_READER_H
#define MUSTER_NCCL_READER_H

#include "proto/include/muster_error.h"
#include "runtime/nccl/description.h"

struct reader_options {
    const char *root;            /* "" for the machine's own /sys, /proc, /etc, /dev */
    char *const *environment;    /* NULL-terminated NAME=value */
    const char *home;            /* for ~/.nccl.conf; NULL: none */
    const char *host;            /* this node's name */
    const char *master;          /* as given; NULL or "" for one node */
    const char *master_address;  /* numeric, NULL where it is not resolved yet */
    const char *dialled_address; /* on the master itself: the address that other nodes dial; NULL elsewhere */
    const char *log_dir;         /* NULL: none */
    int nnodes, local_workers;
    int64_t gpus_wanted; /* -1: none asked */
};

/* description needs no initialisation. Errors are MUSTER_E_NOMEM only: what cannot be read is unknown. */
int reader_read(const struct reader_options *options, struct description *description,
                struct muster_error *err);

#endif
