/* world_launchers.h - ranks that another launcher than ours or torchrun has started: mpirun, mpiexec, srun.
 * Pure.
 */
#ifndef MUSTER_PROTO_WORLD_WORLD_LAUNCHERS_H
#define MUSTER_PROTO_WORLD_WORLD_LAUNCHERS_H

#include "proto/world/world_environment.h"
#include "proto/world/world_variables.h"

/* Whether the variables of a launcher of the table are set: 1 and the place of this rank, 0 if none is. Where
 * MASTER_ADDR and MASTER_PORT are not set they are derived, so that all ranks find the same: the address
 * where all ranks run on one node, and from Slurm's list of nodes; the port from the launcher's name for the
 * job. If that fails: MUSTER_E_INVALID, which names the variables and how to pass them; so is a rank
 * without its size, or a size without a rank. */
int world_launcher_read(const struct world_variables *v, struct world_place *place);

#endif
