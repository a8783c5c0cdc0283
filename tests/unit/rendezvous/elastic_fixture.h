/* elastic_fixture.h - an elastic world's roster with up to 8 agents, for tests of its rules. */
#ifndef MUSTER_TESTS_UNIT_RENDEZVOUS_ELASTIC_FIXTURE_H
#define MUSTER_TESTS_UNIT_RENDEZVOUS_ELASTIC_FIXTURE_H

#include "rendezvous/roster/roster.h"

enum { ELASTIC_NAMES = 8, LAST_CALL_S = 30, NOTICE_S = 20 };

struct elastic_fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int slot[ELASTIC_NAMES]; /* slot of the agent with this session - 1 */
    uint64_t sequence[ELASTIC_NAMES];
    struct membership_world world[ELASTIC_NAMES]; /* the last that it was sent */
    int failed_class[ELASTIC_NAMES];              /* that came with it */
    struct membership_event stop[ELASTIC_NAMES], verdict[ELASTIC_NAMES];
    int stops, worlds, verdicts, handovers; /* sent by the last step */
    struct muster_error err;
};

extern const int elastic_all[]; /* agents 1 to 7: agent 0 hosts the roster and needs no beats */

/* A roster of MIN:MAX nodes, with two restarts; starts are held back for so long after a failure. */
void elastic_create_held_back(struct elastic_fixture *f, int min, int max, int64_t backoff_ns);
/* The same with no back-off. */
void elastic_create(struct elastic_fixture *f, int min, int max);
int elastic_teardown(void **state);
/* For cmocka: 2:4 nodes. */
int elastic_setup(void **state);
/* The registration of an agent, with who + 1 workers; agent 0 hosts the roster. */
struct roster_join elastic_join_of(int who, const char *name);
void elastic_join_as(struct elastic_fixture *f, int who, const struct roster_join *join);
void elastic_join(struct elastic_fixture *f, int who, const char *name);
/* An event of an agent's connection. */
void elastic_event_of(struct elastic_fixture *f, int who, struct roster_event event);
/* An agent reports about the last world that it was sent. */
void elastic_report(struct elastic_fixture *f, int who, enum membership_report_kind kind);
/* Lets time pass, a second at a time; `who`, (count): the agents that go on beating. */
void elastic_pass(struct elastic_fixture *f, double seconds, const int *who, int count);
/* The roster's line of state. */
void elastic_expect_state(struct elastic_fixture *f, const char *expected);
/* Three of 2:4 after the last call; all run. */
void elastic_three_run(struct elastic_fixture *f);
/* These agents report that their workers have stopped. */
void elastic_stop_and_form(struct elastic_fixture *f, const int *who, int count);
/* Agent 1's workers fail, and all three stop. */
void elastic_three_fail(struct elastic_fixture *f);
/* The line of progress. */
void elastic_expect_progress(struct elastic_fixture *f, const char *expected);
/* An agent leaves or drains, with 5 s of grace. */
void elastic_goes(struct elastic_fixture *f, int who, enum roster_event_kind kind, int exit_code);

#endif
