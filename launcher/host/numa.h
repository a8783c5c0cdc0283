/* numa.h - binds workers to CPUs: the topology of the machine and the rules of --numa-binding.
 *
 * numa_bind is pure; numa_read and numa_gpu_node take the folder to read ("/sys"), so that tests pass
 * their own. */
#ifndef MUSTER_LAUNCHER_HOST_NUMA_H
#define MUSTER_LAUNCHER_HOST_NUMA_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { NUMA_CPUS_LIMIT = 8192 };

/* A set of CPUs, laid out as the kernel's: bits can be given to sched_setaffinity. */
struct numa_mask {
    uint64_t bits[NUMA_CPUS_LIMIT / 64];
};

static inline bool numa_mask_has(const struct numa_mask *mask, int cpu)
{
    return mask->bits[cpu / 64] >> (cpu % 64) & 1;
}
static inline void numa_mask_add(struct numa_mask *mask, int cpu)
{
    mask->bits[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}
int numa_mask_count(const struct numa_mask *mask);
/* "0-3,8" as in /sys and in taskset, one trailing newline allowed. false for anything else. */
bool numa_mask_parse(const char *text, struct numa_mask *mask);
void numa_mask_print(const struct numa_mask *mask, struct buffer *out);

enum numa_binding { NUMA_UNBOUND, NUMA_NODE, NUMA_SOCKET, NUMA_EXCLUSIVE, NUMA_CORE_COMPLEX };

/* Groups are named by their lowest CPU. */
struct numa_cpu {
    int node, package;
    int core;  /* threads that share a physical core */
    int cache; /* CPUs that share the highest-level data or unified cache */
};

struct numa_topology {
    int cpu_count;            /* length of cpus: the highest CPU of any node, plus one */
    struct numa_cpu *cpus;    /* node -1: no such CPU */
    struct numa_mask allowed; /* the CPUs this process may run on */
};

/* Reads nodes, cores and caches. numa_free on success. */
int numa_read(const char *sys, const struct numa_mask *allowed, struct numa_topology *topology,
              struct muster_error *err);
void numa_free(struct numa_topology *topology);
/* The NUMA node of a GPU by its PCI address; 0 if the firmware gives none. -1 with a reason if there is no
 * such device. */
int numa_gpu_node(const char *sys, const char *bus, struct muster_error *err);

/* The nodes with allowed CPUs, in order, at most limit of them; returns how many there are. */
int numa_usable_nodes(const struct numa_topology *topology, int *nodes, int limit);

/* The CPUs of the worker in this slot. nodes[i]: the NUMA node of slot i, one slot a GPU (or a worker,
 * without GPUs), so that slots of one node share it. Only allowed CPUs are given. node: all of the node.
 * socket: all nodes on the node's socket. exclusive: whole physical cores of the node, divided among its
 * slots; low slots get the remainder. core-complex: one group of CPUs under a last-level cache, the
 * largest first, in turn. An error if no CPU is left to bind to. */
int numa_bind(const struct numa_topology *topology, enum numa_binding binding, const int *nodes, int slots,
              int slot, struct numa_mask *mask, struct muster_error *err);

#endif
