/* agent.h - one `muster run`: the epoll loop that joins the world, starts workers, watches them and tells how
 * it ended. */
#ifndef MUSTER_LAUNCHER_AGENT_H
#define MUSTER_LAUNCHER_AGENT_H

#include "launcher/config.h"
#include "proto/base/log.h"

/* Runs the job to its end and returns the exit code (proto/exit_code.h). Errors of muster itself are logged
 * to log. */
int agent_run(const struct run_config *config, const struct log_sink *log);

#endif
