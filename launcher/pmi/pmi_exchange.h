/* pmi_exchange.h - one exchange of keys between the nodes of an MPI job (pmi.h), through the job's store.
 *
 * A node appends its text to one value and counts itself. The last node copies the value to a key for which
 * the others wait. So an exchange costs a node three requests for any number of ranks. */
#ifndef MUSTER_LAUNCHER_PMI_PMI_EXCHANGE_H
#define MUSTER_LAUNCHER_PMI_PMI_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

/* Blocks until all nodes have come, or *ends is set: MUSTER_E_CANCELLED. out gets the texts of all nodes;
 * NULL: this node has none of its own in MPI, and does not wait. */
int pmi_exchange(struct tcpstore_client *client, int number, int nodes, const struct buffer *own,
                 struct buffer *out, const atomic_bool *ends, struct muster_error *err);

#endif
