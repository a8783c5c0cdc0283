/* machine.h - resources of this machine for workers: cores (affinity mask and cgroup CPU quota) and NVIDIA
 * GPUs, counted or asked of NVML.
 *
 * Parsers are pure; the readers take their directories as arguments, so that tests pass their own. */
#ifndef MUSTER_LAUNCHER_HOST_MACHINE_H
#define MUSTER_LAUNCHER_HOST_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/nvml/nvml_describe.h"

/* --- NVML ---
 *
 * This machine's GPUs from NVML, queried once, with a time limit for a sick driver. */

/* The report of one start, shared by all that need it. Begins zeroed. */
struct nvml_probe {
    struct nvml_report *report; /* the report up to the end or the failure; NULL: not queried, or no driver */
    struct muster_error failure; /* MUSTER_OK: the report is complete */
};

/* Whether a driver is there for NVML to query; checks /dev, which cannot block. */
bool nvml_probe_has_driver(void);
/* Queries NVML (MUSTER_NVML_LIBRARY's or the driver's) in a process of its own for at most patience_ns,
 * unless it was queried before or there is no driver. If it hangs, fails or crashes, failure holds the
 * reason. Fails without memory only. For a program that still has one thread. */
int nvml_probe_ask(struct nvml_probe *probe, int64_t patience_ns, struct muster_error *err);
/* Queries NVML and merges the report into a description: nvml and nvml_error describe a failure. */
int nvml_probe_describe(struct nvml_probe *probe, int64_t patience_ns, struct description *description,
                        struct muster_error *err);
void nvml_probe_free(struct nvml_probe *probe);

/* --- this machine --- */

enum {
    MACHINE_NAME_SIZE = 256,
    MACHINE_GPUS_LIMIT = (int)DESCRIPTION_GPUS_LIMIT + (int)NVML_REPORT_INSTANCES,
};

struct machine {
    int cores;       /* >= 1 */
    int gpus;        /* >= 0, visible ones */
    int mig;         /* how many of them are MIG instances; known with NVML only */
    bool gpus_named; /* NVML was queried, so gpu_bus is filled */
    char gpu_bus[MACHINE_GPUS_LIMIT][DESCRIPTION_NAME]; /* PCI addresses of the visible GPUs */
    char gpus_unknown[MUSTER_ERROR_TEXT]; /* why NVML failed; "" if it did not or was not queried */
    uint64_t random[2];
    char host_name[MACHINE_NAME_SIZE]; /* machine_host_name's */
    char full_name[MACHINE_NAME_SIZE]; /* by /etc/hosts; "" if it has none */
};

/* This agent's name: MUSTER_HOSTNAME, which muster local sets for each of its pods, since they share a
 * kernel, else the kernel's. "" if there is none. */
void machine_host_name(char out[MACHINE_NAME_SIZE]);

/* The full name that a hosts file (the text of /etc/hosts) gives this host name: the first name of a line
 * that also has the host name itself, and begins with it and a dot. "" if there is none. */
void machine_full_name(const char *hosts, const char *host_name, char out[MACHINE_NAME_SIZE]);

/* Whether process ids reported by the kernel or a driver are valid here: not inside a container. */
bool machine_in_first_pid_namespace(void);

/* Reads the machine. visible_devices is CUDA_VISIBLE_DEVICES or NULL. Cannot fail: an unreadable source
 * sets no limit. */
void machine_read(const char *visible_devices, struct machine *machine);
/* Queries NVML for the GPUs (once a start), after machine_read, whose count by /dev stays if
 * NVML fails; gpus_unknown holds the reason. Blocks for as long as the driver does, up to a limit: only if
 * the result is needed (config_wants_gpus). Fails without memory only. */
int machine_read_gpus(const char *visible_devices, struct nvml_probe *probe, struct machine *machine,
                      struct muster_error *err);
/* Pure: the same from a report. */
void machine_take_gpus(const struct nvml_report *report, const struct muster_error *failure,
                       const char *visible_devices, struct machine *machine);

/* GPUs that a process sees of those present, whose UUIDs are not known (visible_devices.h). */
int machine_visible_gpus(int present, const char *visible_devices);
/* The number of nvidia<number> entries in a directory such as /dev. */
int machine_count_gpus(const char *directory);

#endif
