/* refusal.h - reports start-up failures in the same places as runtime failures (termination log, error
 * file). */
#ifndef MUSTER_LAUNCHER_VERDICT_REFUSAL_H
#define MUSTER_LAUNCHER_VERDICT_REFUSAL_H

#include "launcher/config/config.h"

/* Writes the reason into the termination log and the error file of this process's parent; nothing for a
 * command that does not start workers. config: as far as it is known, after config_salvage. complaints: a
 * line for each requested file that could not be written. Blocks, with a bound. */
void startup_failure_write(const char *shown, const struct run_config *config, const char *message,
                           int exit_code, struct buffer *complaints);

#endif
