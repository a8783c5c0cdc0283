/* topology.h - pure: GPUs and NICs as a matrix with NCCL's distance words, a legend, and what is badly
 * placed. */
#ifndef MUSTER_RUNTIME_NCCL_DESCRIBE_TOPOLOGY_H
#define MUSTER_RUNTIME_NCCL_DESCRIBE_TOPOLOGY_H

#include "proto/base/buffer.h"
#include "runtime/nccl/describe/description.h"

/* Appends the matrix (a row a GPU; columns the GPUs, then RDMA ports and the interfaces that are cards of
 * their own as NIC0..), NUMA node and CPUs of each GPU, what the numbers mean, the legend of the words that
 * occur, and warnings. A machine without GPUs says so. */
int topology_print(const struct description *description, struct buffer *out);

#endif
