/* agent.h - one `muster run`: the epoll loop that joins the world, starts workers, supervises them and
 * reports the result. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_H
#define MUSTER_LAUNCHER_AGENT_AGENT_H

#include "launcher/config/config.h"
#include "launcher/nccl/nccl_env.h"
#include "proto/base/log.h"

/* Runs the job to its end and returns the exit code (proto/exit_code.h). tune: filled by nccl_env_read and
 * nccl_env_check; decided again for every world. Errors of muster itself are logged to log. */
int agent_run(const struct run_config *config, struct nccl_env *tune, const struct log_sink *log);

#endif
