/* reader.h - fills a description from the machine: /sys, /proc, rtnetlink, the environment and NCCL's files.
 *
 * reader_read reads what answers at once, in about a millisecond. What can block is asked apart, in a process
 * of its own: the driver (nvml_describe.h) and the disk (reader_disk). Files are found below a root
 * directory, so that tests bring their own /sys and /proc; links and addresses of interfaces are always the
 * kernel's. */
#ifndef MUSTER_RUNTIME_NCCL_READ_READER_H
#define MUSTER_RUNTIME_NCCL_READ_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

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
    bool thorough;       /* also what a launch does not need: every device of the PCI bus is looked at */
};

/* description needs no initialisation. Errors are MUSTER_E_NOMEM only: what cannot be read is unknown. */
int reader_read(const struct reader_options *options, struct description *description,
                struct muster_error *err);

/* Distances that nobody knows yet, and access control, of all pairs of GPUs and of GPUs and RDMA ports, from
 * the PCI tree. reader_read does it for the GPUs that it found; again when NVML has named others. */
int reader_distances(const char *root, struct description *description, struct muster_error *err);

/* What the disk of a directory (made or not; NULL: TMPDIR, /tmp) says: room, whether a file can be written
 * there, and how far the clock that stamps it is from this process's. Blocks for as long as a file server
 * does. */
struct reader_disk {
    char path[DESCRIPTION_TEXT], error[DESCRIPTION_TEXT];
    int64_t free_bytes, free_inodes; /* -1 unknown */
    double clock_offset_s;
};
void reader_disk_read(const char *directory, struct reader_disk *disk);
void reader_disk_keep(const struct reader_disk *disk, struct description *description);

/* The driver's error reports in the kernel log (root's /dev/kmsg), the newest DESCRIPTION_XIDS_LIMIT of them;
 * uptime_ns is the machine's now. Reads the whole log: some ten milliseconds where it is large. */
int reader_kernel_log(const char *root, int64_t uptime_ns, struct description *description,
                      struct muster_error *err);

/* Marks anew the interface by which the master is reached, once its address is known: the kernel's route to
 * it, or on the master itself (here) the interface that holds it. Nothing is sent. Where
 * there is no route, the marks stay. */
void reader_route(struct description *description, const char *master_address, bool here);

#endif
