/* reader.h - fills a description from the machine: /sys, /proc, rtnetlink, the environment and NCCL's
 * files.
 *
 * reader_read reads sources that never block, in about a millisecond. Sources that can block are read
 * separately, in a process of their own: the driver (nvml_describe.h) and the disk (reader_disk). Files
 * are found below a root directory, so that tests bring their own /sys and /proc; links and addresses of
 * interfaces are always the kernel's. */
#ifndef MUSTER_RUNTIME_NCCL_READ_READER_H
#define MUSTER_RUNTIME_NCCL_READ_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

struct reader_options {
    const char *root;           /* "" for the machine's own /sys, /proc, /etc, /dev */
    char *const *environment;   /* NULL-terminated NAME=value */
    const char *home;           /* for ~/.nccl.conf; NULL: none */
    const char *host;           /* this node's name */
    const char *master;         /* as given; NULL or "" for one node */
    const char *master_address; /* numeric, NULL until it is resolved */
    const char
        *dialled_address; /* on the master itself: the address that other nodes connect to; NULL elsewhere */
    const char *log_dir;  /* NULL: none */
    int nnodes, local_workers;
    int64_t gpus_wanted; /* -1: none asked */
    bool thorough;       /* also sources that a launch does not need: every device of the PCI bus is read */
};

/* description needs no initialisation. Errors are MUSTER_E_NOMEM only: an unreadable source leaves its
 * fields unknown. */
int reader_read(const struct reader_options *options, struct description *description,
                struct muster_error *err);

/* Unknown distances and access control, of all pairs of GPUs and of GPUs and RDMA ports, from the PCI
 * tree. reader_read does this for the GPUs that it found; call it again after NVML has named others. */
int reader_distances(const char *root, struct description *description, struct muster_error *err);

/* State of a directory's disk (the directory may not exist yet; NULL: TMPDIR, /tmp): free space, whether a
 * file can be written there, and the offset of its time stamps from this process's clock. Blocks for as
 * long as a file server does. */
struct reader_disk {
    char path[DESCRIPTION_TEXT], error[DESCRIPTION_TEXT];
    int64_t free_bytes, free_inodes; /* -1 unknown */
    double clock_offset_s;
};
void reader_disk_read(const char *directory, struct reader_disk *disk);
void reader_disk_keep(const struct reader_disk *disk, struct description *description);

/* The driver's error reports in the kernel log (/dev/kmsg, readable by root), the newest
 * DESCRIPTION_XIDS_LIMIT of them; uptime_ns is the machine's now. Reads the whole log: about ten
 * milliseconds if it is large. */
int reader_kernel_log(const char *root, int64_t uptime_ns, struct description *description,
                      struct muster_error *err);

/* Marks the interface that reaches the master, once its address is known: the kernel's route to it, or on
 * the master itself (here) the interface that holds it. Nothing is sent. Without a route the marks stay. */
void reader_route(struct description *description, const char *master_address, bool here);

#endif
