/* topology.h - pure: GPUs and NICs as a matrix with NCCL's distance words, a legend, and what is badly
 * placed. */
#ifndef MUSTER_NCCL_TOPOLOGY_H
#define MUSTER_NCCL_TOPOLOGY_H

#include "proto/base/buffer.h"
#include "runtime/nccl/description.h"

/* Appends the matrix (rows and columns GPU0.., then RDMA ports and physical interfaces as NIC0..), CPUs and
 * NUMA node of each, the legend of the words that occur, and warnings. A machine without GPUs says so. */
int topology_print(const struct description *description, struct buffer *out);

#endif
