/* report.h - pure: from observed deaths to the verdict, the failure report and the exit code.
 *
 * Ranking of causes: signal or out-of-memory first, then lost nodes, then other exit codes, then known
 * communication errors (the cascade: what a worker says when its peer went away, also where it aborts itself
 * for that); inside a class the earliest, which is the one with the largest age, since ages of one list count
 * back from one instant. Workers that we stopped ourselves are never causes: their agents do not report them.
 * A failure with pid 0 is a lost node. */
#ifndef MUSTER_LAUNCHER_REPORT_H
#define MUSTER_LAUNCHER_REPORT_H

#include "launcher/config.h"
#include "rendezvous/membership.h"

/* name, heading in the report; in the order of the ranking */
#define REPORT_CLASSES(X)                                                                                    \
    X(REPORT_KILLED, "killed")                                                                               \
    X(REPORT_LOST_NODE, "lost node")                                                                         \
    X(REPORT_EXITED, "exited")                                                                               \
    X(REPORT_CASCADE, "followed another failure")

enum report_class {
#define REPORT_ENUM(symbol, name) symbol,
    REPORT_CLASSES(REPORT_ENUM)
#undef REPORT_ENUM
};

enum report_class report_class_of(const struct worker_failure *failure);
const char *report_class_name(enum report_class class);

/* The index of the first cause among count failures (>= 1), by the rules above. */
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
/* SIGSEGV for 11; "SIG99" style, in scratch, for unknown numbers. */
const char *report_signal_name(int signal, char *scratch, size_t size);

#endif
