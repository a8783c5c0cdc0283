/* activity_probe.h - looks at workers from outside: processor time of their sessions, output in regular
 * files, and what their main threads wait in. On a background thread: /proc and log files may not respond. */
#ifndef MUSTER_LAUNCHER_PROCESS_ACTIVITY_PROBE_H
#define MUSTER_LAUNCHER_PROCESS_ACTIVITY_PROBE_H

#include <stddef.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "launcher/policy/activity.h"

/* The job's payload, to be read when the job is done. */
struct activity_probe {
    size_t count;
    struct {
        pid_t session;                 /* of a worker, and its pid; 0: none */
        struct activity_sample sample; /* output: sizes of the regular files that are its stdout and stderr */
    } workers[];
};

/* Starts one look at the sessions; *probe belongs to the job. NULL with an error. */
struct background_job *activity_probe_start(const pid_t *sessions, size_t count,
                                            struct activity_probe **probe, struct muster_error *err);

/* utime + stime + cutime + cstime of a /proc/PID/stat text in clock ticks; -1 if it has none (pure). */
long long activity_probe_ticks(const char *stat_text);

#endif
