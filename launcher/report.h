/* report.h - pure: from observed deaths to the verdict, the failure report and the exit code (design table below).
 *
 * Ranking of causes: signal or out-of-memory first, then lost nodes, then other exit codes, then known communication errors
 * (the cascade); inside a class the earliest. Workers that we stopped ourselves are never causes. */
#ifndef MUSTER_LAUNCHER_REPORT_H
#define MUSTER_LAUNCHER_REPORT_H

#include "launcher/config.h"
#include "rendezvous/membership.h"

/* The index of the first cause among count failures (>= 1), by the rules above. */
int report_first_cause(const struct worker_failure *failures, int count);
/* The exit code that a failure stands for: its own code, or 128 + signal. */
int report_exit_code(const struct worker_failure *failure);
/* torchrun's report layout (ChildFailedError line, rules of at most 60 '=', "Root Cause (first observed failure)") with
 * signal names, core dump and OOM words, and the last stderr lines. name is the program as typed. */
int report_format(const char *name, const struct worker_failure *failures, int count, struct buffer *out);
/* One line: `failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: x` as tools expect it. */
int report_line(const char *name, const struct worker_failure *failure, struct buffer *out);
/* SIGSEGV for 11; "SIG99" style for unknown numbers. */
const char *report_signal_name(int signal, char *scratch, size_t size);

#endif
