/* refusal.h - a run that ends before it begins is told of where an orchestrator looks, as one that fails
 * later is. */
#ifndef MUSTER_LAUNCHER_VERDICT_REFUSAL_H
#define MUSTER_LAUNCHER_VERDICT_REFUSAL_H

#include "launcher/config/config.h"

/* Writes why into the termination log and the error file of whoever started this process; nothing for a
 * command that was not to start workers. config: as far as it is known, after config_salvage. complaints: a
 * line for each file that was wanted and could not be written. Blocks, with a bound. */
void startup_failure_write(const char *shown, const struct run_config *config, const char *message,
                           int exit_code, struct buffer *complaints);

#endif
