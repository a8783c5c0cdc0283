/* postmortem.h - what a worker left in files: the last lines of a stderr that was redirected, and whether it
 * wrote its error file.
 *
 * Read by a thread: log directories lie on network file systems, and one that stalls must hold up neither the
 * heartbeats nor the stop of the other workers. */
#ifndef MUSTER_LAUNCHER_POSTMORTEM_H
#define MUSTER_LAUNCHER_POSTMORTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/tail.h"
#include "proto/include/muster_error.h"

struct postmortem {
    bool wrote_error_file;
    char tail[TAIL_BYTES]; /* as tail_format writes it; "" where there is none */
};

/* Either path may be NULL: then nothing is looked at. A file that is not there is no error. -1 where the
 * thread cannot be started, or has found nothing out within patience_ns (MUSTER_E_TIMEOUT): it is left to end
 * by itself, and *found is empty. */
int postmortem_read(const char *stderr_file, const char *error_file, int64_t patience_ns,
                    struct postmortem *found, struct muster_error *err);

#endif
