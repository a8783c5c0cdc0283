/* failure_files.h - the files that describe a failed job: failure.json, the pod's termination log, and the
 * error file of this agent's parent.
 *
 * Written by a thread with a bounded wait: a file system cannot delay the agent's end. */
#ifndef MUSTER_LAUNCHER_VERDICT_FAILURE_FILES_H
#define MUSTER_LAUNCHER_VERDICT_FAILURE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/config/config.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { TERMINATION_LOG_LIMIT = 4096 }; /* read by the kubelet */

/* Texts are copied; a NULL path: no file. */
struct failure_files {
    const char *json, *json_directory; /* failure.json, whole or not at all */
    const char *sentence, *termination_log;
    bool termination_log_asked; /* by name: created if missing, and a failure is reported */
    /* for an agent that is itself a worker, as torchrun does: the first cause's error file with its exit
     * code or, if there is none, a file of ours */
    const char *error_file, *cause_error_file, *traceback;
    int exit_code;
    int64_t wall_ns;
};

/* complaints: a line for each requested file that could not be written. -1 (MUSTER_E_TIMEOUT) if the
 * thread was not done in time, or could not be started. */
int failure_files_write(const struct failure_files *files, int64_t patience_ns, struct buffer *complaints,
                        struct muster_error *err);

/* Writes the reason into the termination log and the error file of this process's parent; nothing for a
 * command that does not start workers. config: as far as it is known, after config_salvage. complaints: a
 * line for each requested file that could not be written. Blocks, with a bound. */
void startup_failure_write(const char *shown, const struct run_config *config, const char *message,
                           int exit_code, struct buffer *complaints);

#endif
