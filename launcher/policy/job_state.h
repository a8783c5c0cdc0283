/* job_state.h - pure: what a job leaves on a volume for the agent that is started after this one
 * (--state-dir): how many restarts are used up, and whether it is over.
 *
 * One text file a job, named by its id:
 *     muster job state 1
 *     job <id>
 *     restarts <n>
 *     phase running | left | done
 *     exit code <n>
 *     checksum <16 hexadecimal digits over what stands above>
 */
#ifndef MUSTER_LAUNCHER_POLICY_JOB_STATE_H
#define MUSTER_LAUNCHER_POLICY_JOB_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* symbol, name in the file, meaning */
#define JOB_PHASES(X)                                                                                        \
    X(JOB_RUNS, "running", "workers run; found by a new agent: the last one vanished without a word")        \
    X(JOB_LEFT, "left", "the agent was told to end, or a world could not form: it may go on")                \
    X(JOB_DONE, "done", "there was a verdict on the job; exit code is its")

enum job_phase {
#define JOB_PHASE_ENUM(symbol, ...) symbol,
    JOB_PHASES(JOB_PHASE_ENUM)
#undef JOB_PHASE_ENUM
        JOB_PHASE_COUNT
};

struct job_state {
    int64_t restart_count;
    enum job_phase phase;
    int exit_code; /* of a job that is done */
};

enum { JOB_STATE_SIZE_LIMIT = 4096 };

/* directory/job_id.muster-job, the caller's; NULL without memory. */
char *job_state_path(const char *directory, const char *job_id);
int job_state_format(const struct job_state *state, const char *job_id, struct buffer *out);
/* MUSTER_E_INVALID where the text is not a whole state of this job; err says what is wrong with it. */
int job_state_parse(const char *text, size_t length, const char *job_id, struct job_state *state,
                    struct muster_error *err);

/* What the agent of a new life makes of the state that it found; *state becomes its own. */
enum job_resume {
    JOB_RESUME,   /* go on, restart_count being used up */
    JOB_IS_OVER,  /* leave at once with exit_code */
    JOB_IS_SPENT, /* the lost life was one restart more than there are: leave with exit_code; done now */
};
enum job_resume job_state_resume(struct job_state *state, int64_t max_restarts);

#endif
