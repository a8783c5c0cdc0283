/* local_print.h - the pods of a job as text, and as JSON (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_LOCAL_PRINT_H
#define MUSTER_LAUNCHER_LOCAL_LOCAL_PRINT_H

#include "launcher/local/job/job.h"
#include "proto/base/buffer.h"

/* A list of {name, replica_type, index, hostname, env: {...}, command: [...]}, one pod a line. -1 without
 * memory. */
int local_print_json(const struct local_job *job, struct buffer *out);
/* The job in a line, then each pod with its command as a shell would take it and its environment. */
int local_print_text(const struct local_job *job, struct buffer *out);

#endif
