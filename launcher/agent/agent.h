/* agent.h - one `muster run`: the epoll loop that joins the world, starts workers, watches them and tells how
 * it ended. */
#ifndef MUSTER_LAUNCHER_AGENT_H
#define MUSTER_LAUNCHER_AGENT_H

#include "launcher/config.h"
#include "launcher/tune.h"
#include "proto/base/log.h"

/* Runs the job to its end and returns the exit code (proto/exit_code.h). tune: as tune_read and tune_check
 * left it; decided anew for every world. Errors of muster itself are logged to log. */
int agent_run(const struct run_config *config, struct tune *tune, const struct log_sink *log);

#endif
