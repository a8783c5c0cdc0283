/* failure_files.h - the files that tell of a failed job: failure.json, the pod's termination log, and the
 * error file of whoever started this agent.
 *
 * Written by a thread, which the caller waits for no longer than it says: an agent's end is not held up by a
 * file system. */
#ifndef MUSTER_LAUNCHER_VERDICT_FAILURE_FILES_H
#define MUSTER_LAUNCHER_VERDICT_FAILURE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { TERMINATION_LOG_LIMIT = 4096 }; /* what a kubelet reads */

/* Texts are copied; a NULL path: not wanted. */
struct failure_files {
    const char *json, *json_directory; /* failure.json, whole or not at all */
    const char *sentence, *termination_log;
    bool termination_log_asked; /* by name: made where it is not there, and a failure is said */
    /* torchrun's way with an agent that is itself a worker: the first cause's error file with its exit code,
     * or, where there is none, one of ours */
    const char *error_file, *cause_error_file, *traceback;
    int exit_code;
    int64_t wall_ns;
};

/* complaints: a line for each file that was wanted and could not be written. -1 (MUSTER_E_TIMEOUT) where the
 * thread was not done in time, or could not be sent. */
int failure_files_write(const struct failure_files *files, int64_t patience_ns, struct buffer *complaints,
                        struct muster_error *err);

#endif
