/* report.h - pure: the verdict on a job that failed, as a report for people in torchrun's layout, one
 * sentence, and JSON.
 *
 * Which failure is the first cause and what exit code it stands for is decided once for the whole job, by
 * rendezvous/failure/failure.h; this file only displays it. */
#ifndef MUSTER_LAUNCHER_VERDICT_REPORT_H
#define MUSTER_LAUNCHER_VERDICT_REPORT_H

#include "launcher/config/config.h"
#include "proto/base/buffer.h"
#include "rendezvous/failure/failure.h"

/* A worker that the launcher stopped. */
struct report_stopped {
    int rank, local_rank, pid;
    int exit_code, signal; /* as in worker_failure */
    char *place; /* where it was, which it left in its error file; its owner's; NULL: it left nothing */
};

struct report_failure {
    const struct worker_failure *failure; /* its owner's */
    bool timed;
    int64_t after_ns;     /* timed: after the first cause; negative: before it */
    bool error_file_goes; /* it is removed with the job, and so is not named */
};

enum { REPORT_VOTERS = 5, REPORT_CHANGES = 16 };

/* A change of the agent that serves the job. */
struct report_change {
    int64_t wall_ns;
    const char *server; /* "": none */
    const char *reason;
};

struct report {
    const char *program; /* as typed */
    const char *job_id;
    const char *host;                      /* the reporting agent's */
    const char *reason;                    /* why the job is over if no failure is the cause; else NULL */
    const struct report_failure *failures; /* the first cause, then the others by their keys; may be none */
    int count;
    int total;                            /* failures, including unlisted ones */
    const struct report_stopped *stopped; /* this agent's */
    int stopped_count, stopped_total;
    const struct report_stopped *done; /* this agent's workers that exited 0 while the round ran */
    int done_count;
    int exit_code; /* the agent's exit code */
    int64_t restarts, max_restarts;
    unsigned round;
    int64_t wall_ns;    /* the verdict's */
    const char *server; /* the agent that serves the job; NULL: unknown, or none */
    const char *voters[REPORT_VOTERS];
    int voter_count; /* who elect the next server */
    struct report_change changes[REPORT_CHANGES];
    int change_count; /* the latest, the oldest first */
};

/* torchrun's report: ChildFailedError line, rules of at most 60 '=', "Failures:", "Root Cause (first
 * observed failure)" with the same six fields, the traceback of an error file included. Ours is added:
 * signal names, core dump, memory, GPU errors, the last lines of the first cause's stderr; secondary
 * failures, and workers that the launcher stopped, are listed separately. Times are local. At least one
 * failure. Returns 0, or -1 if out had no room. */
int report_format(const struct report *report, struct buffer *out);
/* The result in one line without newline, at most REPORT_SENTENCE_LIMIT bytes. */
enum { REPORT_SENTENCE_LIMIT = 900 };
int report_sentence(const struct report *report, struct buffer *out);
/* failure.json (failure_json.md). */
int report_json(const struct report *report, struct buffer *out);
/* One line, without newline: `failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: x` as tools expect it.
 */
int report_line(const char *name, const struct worker_failure *failure, struct buffer *out);

/* An agent's exit code, by --exit-code. code: as in proto/exit_code.h. ran: workers were started at least
 * once; before that torchrun has codes of its own too (bad usage, a program that cannot be executed, the
 * signal that ended it). */
int report_exit_code(enum exit_mode mode, int code, bool ran);

#endif
