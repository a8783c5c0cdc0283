/* hosts_command.h - `muster run --hosts`, and `muster host-node`, which it starts on each host. */
#ifndef MUSTER_LAUNCHER_HOSTS_HOSTS_COMMAND_H
#define MUSTER_LAUNCHER_HOSTS_HOSTS_COMMAND_H

#include "launcher/config/config.h"
#include "proto/base/log.h"

/* Whether the flags name hosts, and this is not such a host already. */
bool hosts_wanted(const struct run_config *config);
/* Starts the agents of a job with the same arguments on all hosts (argv after "muster run"), and ends with
 * them. Returns the exit code, or -1 for bad usage. */
int hosts_run(const struct run_config *config, int argc, char *const argv[], const struct log_sink *log,
              struct muster_error *err);
/* One host: reads its orders from standard input. */
int hosts_node_main(const char *shown, int argc, char *argv[]);

#endif
