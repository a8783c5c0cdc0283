/* schedule_maker.h - shared by the parts of drawing a schedule: schedule_random.c makes the job,
 * schedule_faults.c its faults, schedule_host.c the agents on the server's host, and the effects. */
#ifndef MUSTER_TESTS_SIMULATION_SCHEDULE_MAKER_H
#define MUSTER_TESTS_SIMULATION_SCHEDULE_MAKER_H

#include "tests/simulation/schedule.h"

enum { FAULTS_UNTIL_MS = 20000 };

struct maker {
    struct schedule *schedule;
    uint64_t random;
    int nodes; /* the job's */
    bool server_dies;
    bool shares;                          /* the host of the endpoint has more agents than node 0's */
    bool spares;                          /* an elastic job's */
    int next_extra;                       /* the next place for an agent that is not of the job */
    int claim[CLUSTER_NODE_LIMIT];        /* that its agents start with; -1: none */
    int64_t start_ms[CLUSTER_NODE_LIMIT]; /* the first's */
};

/* A number from 0 up to limit. */
int64_t maker_below(struct maker *m, int64_t limit);
bool maker_one_in(struct maker *m, int64_t chance);
void maker_step(struct maker *m, int64_t at_ms, enum step_kind kind, int node, int64_t value);
/* Waits for a state of the job. */
void maker_step_in(struct maker *m, int64_t at_ms, enum roster_job_state state, enum step_kind kind, int node,
                   int64_t value);
/* The node's agent, as the job has it. */
void maker_start(struct maker *m, int64_t at_ms, int node);

/* Whether the job of this seed has more agents on the host of the endpoint. */
bool schedule_draws_host(uint64_t seed);
/* Agents of m->shares, and the faults of the serving one. */
void schedule_share_host(struct maker *m);
/* The faults of a job whose server is lost again and again, up to the calm. */
void schedule_move(struct maker *m);
/* All of a job's faults, up to the calm. */
void schedule_add_faults(struct maker *m);

#endif
