/* report.h - pure: the failure report of a job, in torchrun's layout, and the names in it.
 *
 * Which failure is the first cause and what exit code it stands for is decided once for the whole job, by
 * rendezvous/failure.h; what is here shows it. Workers that we stopped ourselves are never among the
 * failures. */
#ifndef MUSTER_LAUNCHER_REPORT_H
#define MUSTER_LAUNCHER_REPORT_H

#include "launcher/config.h"
#include "rendezvous/membership.h"

/* The index of the first cause among count failures (>= 1), by failure_precedes; ages of one list
 * count back from one instant. */
int report_first_cause(const struct worker_failure *failures, int count);
/* The exit code that a failure stands for: its own code, 128 + signal, or 138 for a lost node. */
int report_exit_code(const struct worker_failure *failure);
/* torchrun's report layout (ChildFailedError line, rules of at most 60 '=', "Root Cause (first observed
 * failure)") with signal names, core dump and OOM words, and the last stderr lines of the first cause. name
 * is the program as typed; times are local. Returns 0, or -1 where out had no room. */
int report_format(const char *name, const struct worker_failure *failures, int count, struct buffer *out);
/* One line, without newline: `failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: x` as tools expect it.
 */
int report_line(const char *name, const struct worker_failure *failure, struct buffer *out);

#endif
