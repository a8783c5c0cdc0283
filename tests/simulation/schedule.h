/* schedule.h - a simulated job as data: how the cluster is made and what happens to it when. It is drawn from
 * a seed, written as text and read back, run, and made smaller while it still breaks an invariant. */
#ifndef MUSTER_TESTS_SIMULATION_SCHEDULE_H
#define MUSTER_TESTS_SIMULATION_SCHEDULE_H

#include "proto/include/muster_error.h"
#include "tests/simulation/cluster.h"

struct schedule_step {
    int64_t at_ms;
    enum step_kind kind;
    int node;
    int64_t value; /* as in cluster_step */
    int in;        /* 1 + the job's state that it waits for (cluster_step_in); 0: none */
};

enum { SCHEDULE_STEPS_LIMIT = 512 };

struct schedule {
    struct cluster_options options;
    int64_t until_ms; /* when it must be over */
    int count;
    struct schedule_step steps[SCHEDULE_STEPS_LIMIT];
};

struct outcome {
    enum invariant broken;
    char text[512]; /* what broke; "" */
    uint64_t events;
    enum roster_job_state state;
    int code; /* the verdict's */
    int64_t restarts;
    uint64_t digest; /* with a trace: cluster_digest */
};

/* Equal seeds give equal schedules: odd ones static, even ones elastic jobs. With SCHEDULE_MOVING in it, the
 * serving agent ends again and again, and another agent takes over. */
#define SCHEDULE_MOVING (UINT64_C(1) << 40)
void schedule_random(uint64_t seed, struct schedule *out);

/* Runs it to its end. trace: NULL, or what gets the text of all that happened. Equal schedules have equal
 * outcomes. */
void schedule_run(const struct schedule *schedule, struct outcome *outcome, struct buffer *trace);

/* Lines of words: settings, one line a node that differs, one line a step. Other settings are as in
 * cluster_options. */
void schedule_write(const struct schedule *schedule, struct buffer *out);
int schedule_read(const char *text, struct schedule *out, struct muster_error *err);
/* The same of a file. */
int schedule_load(const char *path, struct schedule *out, struct muster_error *err);

/* Leaves out and simplifies as much as it can while the same invariant breaks. Returns how often it was run.
 */
int schedule_shrink(struct schedule *schedule, enum invariant broken);

#endif
