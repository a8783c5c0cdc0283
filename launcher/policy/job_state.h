/* job_state.h - pure: the state of a job, kept on a volume for the next agent (--state-dir): used
 * restarts, and whether it has ended.
 *
 * One text file a job, named by its id:
 *     muster job state 1
 *     job <id>
 *     restarts <n>
 *     server <the agent that keeps the state; the line may be missing>
 *     phase running | left | done
 *     exit code <n>
 *     checksum <16 hexadecimal digits over the lines above>
 *  */
#ifndef MUSTER_LAUNCHER_POLICY_JOB_STATE_H
#define MUSTER_LAUNCHER_POLICY_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* symbol, name in the file, meaning */
#define JOB_PHASES(X)                                                                                        \
    X(JOB_RUNS, "running", "workers run; found by the next start of its agent: that died unexpectedly")      \
    X(JOB_LEFT, "left", "the agent was stopped, or a world could not form: the job may continue")            \
    X(JOB_DONE, "done", "the job has a verdict; exit code is its")

enum job_phase {
#define JOB_PHASE_ENUM(symbol, ...) symbol,
    JOB_PHASES(JOB_PHASE_ENUM)
#undef JOB_PHASE_ENUM
        JOB_PHASE_COUNT
};

enum { JOB_STATE_SERVER = 256 };

struct job_state {
    int64_t restart_count;
    enum job_phase phase;
    int exit_code;                 /* a finished job's */
    char server[JOB_STATE_SERVER]; /* the agent that keeps it; "": unknown */
};

enum { JOB_STATE_SIZE_LIMIT = 4096 };

/* directory/job_id.muster-job, owned by the caller; NULL without memory. */
char *job_state_path(const char *directory, const char *job_id);
int job_state_format(const struct job_state *state, const char *job_id, struct buffer *out);
/* MUSTER_E_INVALID if the text is not a complete state of this job; err holds the reason. */
int job_state_parse(const char *text, size_t length, const char *job_id, struct job_state *state,
                    struct muster_error *err);

/* The agent keeps the state from now on. */
void job_state_keeper(struct job_state *state, const char *agent);

/* A new agent's reaction to the state that it found; *state becomes its own. The state of a job that another
 * agent serves is not that of a death: the job may run there. */
enum job_resume {
    JOB_RESUME,   /* continue, with restart_count restarts used */
    JOB_IS_OVER,  /* exit at once with exit_code */
    JOB_IS_SPENT, /* the previous agent's death exceeds the limit of restarts: exit with exit_code; the job is
                     done now */
};
enum job_resume job_state_resume(struct job_state *state, const char *agent, int64_t max_restarts);

#endif
