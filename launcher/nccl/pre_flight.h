/* pre_flight.h - pure but for the log: --pre-flight, what muster doctor says of this node before it joins. */
#ifndef MUSTER_LAUNCHER_NCCL_PRE_FLIGHT_H
#define MUSTER_LAUNCHER_NCCL_PRE_FLIGHT_H

#include "launcher/nccl/nccl_env.h"
#include "proto/base/log.h"

/* Examines tune->machine where that was asked for, and logs each row that is not fine, with what to do.
 * tune->unfit becomes why the node must not join, NULL where it may. */
int pre_flight_examine(const struct run_config *config, const struct log_sink *log, struct nccl_env *tune,
                       struct muster_error *err);

#endif
