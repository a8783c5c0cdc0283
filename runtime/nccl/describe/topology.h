/* topology.h - pure: GPUs and NICs as a matrix with NCCL's distance words, a legend, and warnings about
 * placement. */
#ifndef MUSTER_RUNTIME_NCCL_DESCRIBE_TOPOLOGY_H
#define MUSTER_RUNTIME_NCCL_DESCRIBE_TOPOLOGY_H

#include "proto/base/buffer.h"
#include "runtime/nccl/describe/description.h"

/* Appends the matrix (a row a GPU; columns the GPUs, then RDMA ports and interfaces on other cards as
 * NIC0..), NUMA node and CPUs of each GPU, the meaning of the numbers, the legend of the words that occur,
 * and warnings. For a machine without GPUs one line to that effect. */
int topology_print(const struct description *description, struct buffer *out);

#endif
