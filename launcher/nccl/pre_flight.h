/* pre_flight.h - pure but for the log: --pre-flight, the checks of muster doctor before this node joins. */
#ifndef MUSTER_LAUNCHER_NCCL_PRE_FLIGHT_H
#define MUSTER_LAUNCHER_NCCL_PRE_FLIGHT_H

#include "launcher/nccl/nccl_env.h"
#include "proto/base/log.h"

/* Checks tune->machine if configured, and logs each row that is not fine, with its remedy; they are warnings
 * of config, too, for the job's page. tune->unfit becomes the reason why the node must not join, NULL if it
 * may. */
int pre_flight_examine(struct run_config *config, const struct log_sink *log, struct nccl_env *tune,
                       struct muster_error *err);

#endif
