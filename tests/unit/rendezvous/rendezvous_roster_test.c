/* rendezvous_roster_test.c - reports of the members of a world, and its end: tables and
 * causes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "tests/unit/rendezvous/roster_fixture.h"

/* The pairs that the report table does not know. */
static void a_broken_protocol_is_an_error(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, NULL), -1);
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    const struct worker_failure failure = {.exit_code = 7};
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &failure), -1);
    assert_string_equal(f->err.text, "agent \"a\" reports FAILED while it is DONE");
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_EVENT_COUNT}), -1);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_BEAT}), -1);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_JOIN, .session = 1}), -1);
    /* A stale id is not an error: it may have been on its way. */
    assert_int_equal(report(f, 1, 9, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_RUNNING);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* It took the server for lost, and was heard again before it was given up. */
static void who_stops_unasked_costs_a_restart(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    for (int rank = 0; rank < NODES; rank += 2)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

/* It took the server for lost when its workers had ended. It is done all the same, and needs no STOP. */
static void a_done_agent_may_stop_unasked(void **state)
{
    struct fixture *f = *state;
    const struct worker_failure failure = {.exit_code = 7};
    all_run(f);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_DONE);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &failure), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_JOINED);
    for (int rank = 0; rank < NODES; rank += 2)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static int beat(struct fixture *f, int node, int missing, int ended)
{
    const struct roster_event event = {.kind = ROSTER_BEAT,
                                       .session = (uint64_t)node + 1,
                                       .member = node,
                                       .missing = 1 + missing,
                                       .ended = 1 + ended};
    return step(f, &event);
}

/* The second time the server may have heard all others, whose beats come in between, but for silent. */
static void miss(struct fixture *f, int node, int rank, int silent)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(beat(f, node, rank, -1), 0);
        f->now = instant_add(f->now, NS_PER_S / 4);
        for (int other = 0; other < NODES && i == 0; other++)
            if (other != node && other != silent)
                assert_int_equal(beat(f, other, -1, -1), 0);
        f->now = instant_add(f->now, NS_PER_S / 4);
    }
}

static void first_stop_says(struct fixture *f, const char *text)
{
    struct membership_event stop;
    assert_true(f->actions.count > 0);
    roster_fill_event(f->roster, &f->actions.items[0], &stop);
    assert_string_equal(stop.reason, text);
}

/* The nodes have ranks 0, 1 to 2, and 3 to 5. */
static void a_done_agent_that_is_needed_fails_the_round(void **state)
{
    struct fixture *f = *state;
    all_join(f);
    for (int rank = 1; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_RUNNING, NULL), 0);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    miss(f, 2, 5, -1); /* not every node has its workers */
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_RUNNING, NULL), 0);
    miss(f, 2, 2, -1); /* another node's */
    miss(f, 2, 6, -1);
    miss(f, 2, -1, -1);
    miss(f, 1, 1, -1); /* it is done itself */
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    miss(f, 2, 5, -1);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    first_stop_says(f, "rank 1 (on b) exited with code 1: its own code was 0, but rank 5 still needs its "
                       "node: restart 1 of 1");
    miss(f, 0, 0, -1); /* the round stops */
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

/* Of its node others go on. */
static void a_worker_that_ended_and_is_needed_fails_the_round(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(beat(f, 1, -1, 0), 0); /* another node's */
    assert_int_equal(beat(f, 1, -1, 3), 0);
    miss(f, 2, 5, -1);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(beat(f, 1, -1, 2), 0);
    assert_int_equal(beat(f, 0, 0, -1), 0); /* all were heard since the first */
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    first_stop_says(
        f, "rank 2 (on b) exited with code 1: its own code was 0, but rank 0 still needs it: restart 1 of 1");
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 1, MEMBERSHIP_REPORT_RUNNING, NULL), 0);
    miss(f, 2, 5, -1); /* it runs again */
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* The lost peer was on the third node. */
static void a_done_agent_is_not_blamed_for_a_lost_node(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    for (int i = 0; i < 2; i++)
        miss(f, 2, 3, 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    f->now = instant_add(f->now, NS_PER_S / 2);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    first_stop_says(f, "node rank 0 (a) is lost: restart 1 of 1");
}

/* The same with a connection that broke and comes again, and with a server that stood still itself. */
static void each_node_is_heard_before_another_one_is_blamed(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(beat(f, 2, 3, -1), 0);
    f->now = instant_add(f->now, NS_PER_S / 4);
    assert_int_equal(beat(f, 0, -1, -1), 0);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_DISCONNECT, .session = 1, .member = 0}),
                     0);
    assert_int_equal(beat(f, 2, 3, -1), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    const struct roster_join who = join_of(0);
    join(f, 1, &who);
    f->now = instant_add(f->now, NS_PER_S / 4);
    roster_wake(f->roster, f->now);
    assert_int_equal(beat(f, 2, 3, -1), 0);
    f->now = instant_add(f->now, NS_PER_S / 4);
    assert_int_equal(beat(f, 2, 3, -1), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(beat(f, 0, -1, -1), 0);
    f->now = instant_add(f->now, NS_PER_S / 4);
    assert_int_equal(beat(f, 2, 3, -1), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
}

static void a_missed_peer_without_a_done_agent_is_no_failure(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    miss(f, 2, 3, -1);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* The round waits for a node that dies with a worker until it is lost: one failure, whose restart is at once.
 */
static void a_node_that_dies_with_a_worker_costs_no_restart_of_its_own(void **state)
{
    struct fixture *f = *state;
    const struct worker_failure killed = {.rank = 0, .pid = 10, .exit_code = -1, .signal = 9};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &killed), 0);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    struct roster_event lost = {.kind = ROSTER_DISCONNECT, .session = 3, .member = 2};
    assert_int_equal(step(f, &lost), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING); /* it may come back with workers */
    f->now = roster_deadline(f->roster);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_member_state(f->roster, 2), MEMBER_EMPTY);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    struct roster_join next = join_of(2);
    next.incarnation.low = 100;
    join(f, 4, &next);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static const struct membership_event *verdict_of(struct fixture *f)
{
    static struct membership_event event;
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == ROSTER_SEND_VERDICT) {
            roster_fill_event(f->roster, &f->actions.items[i], &event);
            return &event;
        }
    return NULL;
}

/* A failure is reported at once, and once more when the worker's files were read: then it may be another
 * class, and another failure the first cause, whose record must be whole. */
static void what_completes_a_report_takes_its_place(void **state)
{
    struct fixture *f = *state;
    struct worker_failure peer = {.rank = 0, .pid = 10, .exit_code = 1, .age_ns = NS_PER_S},
                          cause = {.rank = 3, .local_rank = 1, .pid = 11, .exit_code = 7};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    for (int round = 0; round < 2; round++) {
        f->sequence[0] = f->sequence[2] = 10 * (round + 1);
        peer.completes = cause.completes = false;
        peer.tail[0] = cause.message[0] = '\0';
        assert_int_equal(report(f, 0, round, MEMBERSHIP_REPORT_FAILED, &peer), 0);
        assert_int_equal(roster_state(f->roster), JOB_STOPPING); /* the others are told at once */
        assert_int_equal(report(f, 2, round, MEMBERSHIP_REPORT_FAILED, &cause), 0);
        peer.completes = cause.completes = true;
        strcpy(cause.message, "ValueError: no");
        assert_int_equal(report(f, 2, round, MEMBERSHIP_REPORT_FAILED, &cause), 0);
        strcpy(peer.tail, "Connection reset by peer");
        assert_int_equal(report(f, 0, round, MEMBERSHIP_REPORT_FAILED, &peer), 0);
        for (int rank = 0; rank < NODES; rank++)
            assert_int_equal(report(f, rank, round, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    }
    const struct membership_event *verdict = verdict_of(f);
    assert_non_null(verdict);
    assert_int_equal(verdict->failure.pid, 11);
    assert_string_equal(verdict->failure.message, "ValueError: no");
    assert_int_equal(verdict->other_total, 1);
    assert_int_equal(verdict->other_count, 1);
    assert_int_equal(verdict->others[0].pid, 10);
    assert_int_equal(verdict->others[0].class_, FAILURE_CASCADE);
    assert_int_equal(verdict->others[0].after_ns, -NS_PER_S);
}

static void a_stronger_cause_restarts_all_the_same(void **state)
{
    struct fixture *f = *state;
    const struct worker_failure usage = {.rank = 3, .pid = 11, .exit_code = 2, .no_restart = true},
                                killed = {.rank = 0, .pid = 10, .exit_code = -1, .signal = 9};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_FAILED, &usage), 0);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &killed), 0); /* a stronger cause */
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

/* It ends the job where it is the first cause, though restarts are left. */
static void what_a_restart_does_not_mend_ends_the_job(void **state)
{
    struct fixture *f = *state;
    const struct worker_failure usage = {.rank = 3, .pid = 11, .exit_code = 2, .no_restart = true};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_FAILED, &usage), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    const struct membership_event *verdict = verdict_of(f);
    assert_non_null(verdict);
    assert_int_equal(verdict->exit_code, 2);
    assert_int_equal(roster_restart_count(f->roster), 0);
}

/* A server that was started again gets it without the report that it completes. */
static void what_completes_an_unknown_report_is_one(void **state)
{
    struct fixture *f = *state;
    struct worker_failure failure = {.rank = 3, .pid = 11, .exit_code = 7, .completes = true};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    for (uint32_t round = 0; round < 2; round++) {
        f->sequence[2] = 10 * (round + 1);
        assert_int_equal(report(f, 2, round, MEMBERSHIP_REPORT_FAILED, &failure), 0);
        for (int rank = 0; rank < NODES; rank++)
            assert_int_equal(report(f, rank, round, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    }
    const struct membership_event *verdict = verdict_of(f);
    assert_non_null(verdict);
    assert_int_equal(verdict->failure.pid, 11);
    assert_int_equal(verdict->other_total, 0);
}

static void the_first_cause_is_found_among_many(void **state)
{
    struct fixture *f = *state;
    struct worker_failure code = {.rank = 0, .exit_code = 7, .age_ns = 9 * NS_PER_S};
    struct worker_failure late = {.rank = 3, .exit_code = -1, .signal = SIGABRT};
    struct worker_failure early = {.rank = 4, .exit_code = -1, .signal = SIGSEGV, .age_ns = NS_PER_S};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    f->sequence[0] = 10; /* the restart below uses a second round of reports */
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &code), 0);
    assert_int_equal(f->actions.count, NODES);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_FAILED, &late), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_world_id(f->roster).round, 1);
    assert_int_equal(report(f, 0, 1, MEMBERSHIP_REPORT_FAILED, &code), 0);
    assert_int_equal(report(f, 2, 1, MEMBERSHIP_REPORT_FAILED, &late), 0);
    f->now.ns += NS_PER_MS;
    assert_int_equal(report(f, 1, 1, MEMBERSHIP_REPORT_FAILED, &early), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 1, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
    struct membership_event event;
    assert_int_equal(f->actions.items[0].kind, ROSTER_SEND_VERDICT);
    roster_fill_event(f->roster, &f->actions.items[0], &event);
    assert_int_equal(event.exit_code, 128 + SIGSEGV);
    assert_int_equal(event.failure.rank, 4);
    assert_int_equal(event.failure.group_rank, 1);
    assert_int_equal(event.other_count, 2);
    assert_int_equal(event.other_total, 2);
    assert_int_equal(event.others[0].signal, SIGABRT);
    assert_true(event.others[0].after_ns == NS_PER_S - NS_PER_MS);
    assert_int_equal(event.others[1].exit_code, 7);
    assert_int_equal(event.others[1].group_rank, 0);
    assert_true(event.others[1].after_ns == -8 * NS_PER_S - NS_PER_MS);
}

static void of_many_failures_the_best_are_kept(void **state)
{
    enum { COUNT = FAILURE_OTHERS_LIMIT + 6 };
    struct fixture *f = *state;
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    for (int i = 0; i < COUNT; i++) { /* the later the report, the earlier it happened */
        struct worker_failure code = {.rank = i, .exit_code = 7, .age_ns = (i + 1) * NS_PER_S};
        assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &code), 0);
    }
    struct roster_action verdict = {.kind = ROSTER_SEND_VERDICT};
    for (int round = 0; round < 2 && roster_state(f->roster) != JOB_FINISHING; round++) {
        for (int rank = 0; rank < NODES; rank++)
            assert_int_equal(report(f, rank, (uint32_t)round, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
        if (roster_state(f->roster) == JOB_FINISHING)
            break;
        for (int i = 0; i < COUNT; i++) {
            struct worker_failure code = {.rank = i, .exit_code = 7, .age_ns = (i + 1) * NS_PER_S};
            assert_int_equal(report(f, 0, 1, MEMBERSHIP_REPORT_FAILED, &code), 0);
        }
    }
    struct membership_event event;
    roster_fill_event(f->roster, &verdict, &event);
    assert_int_equal(event.failure.rank, COUNT - 1);
    assert_int_equal(event.other_count, FAILURE_OTHERS_LIMIT);
    assert_int_equal(event.other_total, COUNT - 1);
    for (int i = 0; i < event.other_count; i++) {
        assert_int_equal(event.others[i].rank, COUNT - 2 - i);
        assert_true(event.others[i].after_ns == (i + 1) * NS_PER_S);
    }
}

/* The first cause stays, and is kept when a further cause has no room. */
static void of_equal_failures_the_first_are_kept(void **state)
{
    enum { ROOM = FAILURE_OTHERS_LIMIT + 1, COUNT = ROOM + 3 };
    struct fixture *f = *state;
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    for (uint32_t round = 0; round < 2; round++) {
        f->sequence[0] = 10000 * (round + 1); /* as after a restart */
        for (int i = 0; i < COUNT; i++) {
            struct worker_failure failure = {.rank = 0, .pid = 10, .exit_code = 7};
            (void)snprintf(failure.message, sizeof failure.message, "number %d", i);
            assert_int_equal(report(f, 0, round, MEMBERSHIP_REPORT_FAILED, &failure), 0);
        }
        /* a report that completes no kept cause may have been counted before */
        struct worker_failure late = {.rank = 1, .pid = 20, .exit_code = 7, .completes = true};
        assert_int_equal(report(f, 0, round, MEMBERSHIP_REPORT_FAILED, &late), 0);
        for (int rank = 0; rank < NODES; rank++) {
            f->sequence[rank] += 100;
            assert_int_equal(report(f, rank, round, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
        }
    }
    const struct membership_event *verdict = verdict_of(f);
    assert_non_null(verdict);
    assert_int_equal(verdict->failure.pid, 10);
    assert_string_equal(verdict->failure.message, "number 0");
    assert_int_equal(verdict->other_total, COUNT - 1);
    assert_int_equal(verdict->other_count, ROOM - 1);
    for (int i = 0; i < verdict->other_count; i++) {
        char wanted[32];
        (void)snprintf(wanted, sizeof wanted, "number %d", i + 1);
        assert_string_equal(verdict->others[i].excerpt, wanted);
    }
}

static void a_late_joiner_is_told_how_it_ended(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_event leave = {.kind = ROSTER_LEAVE, .session = (uint64_t)rank + 1, .member = rank};
        assert_int_equal(step(f, &leave), 0);
    }
    assert_int_equal(roster_state(f->roster), JOB_FINISHED);
    struct roster_join who = join_of(2);
    who.incarnation.low = 1234;
    join(f, 20, &who);
    struct membership_event event;
    assert_int_equal(f->actions.count, 1);
    roster_fill_event(f->roster, &f->actions.items[0], &event);
    assert_int_equal(event.kind, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(event.exit_code, 0);
    who.job_id = "other";
    join(f, 21, &who);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
}

static bool precedes(const struct worker_failure *a, struct instant a_at, const struct worker_failure *b,
                     struct instant b_at)
{
    struct failure_key a_key = failure_key_of(a, a_at), b_key = failure_key_of(b, b_at);
    return failure_key_compare(&a_key, &b_key) < 0;
}

static void causes_are_ranked(void **state)
{
    (void)state;
    struct worker_failure killed = {.rank = 1, .signal = SIGKILL, .exit_code = -1};
    struct worker_failure memory = {.rank = 2, .exit_code = 1, .out_of_memory = true};
    struct worker_failure lost = {.rank = 3, .lost_node = true};
    struct worker_failure code = {.rank = 4, .exit_code = 300};
    struct worker_failure hung = {.rank = 5, .signal = SIGABRT, .hung = true, .tail = "NCCL error"};
    struct instant early = {1}, later = {2};
    assert_true(precedes(&killed, later, &lost, early));
    assert_true(precedes(&lost, later, &code, early));
    assert_true(precedes(&memory, early, &killed, later));
    assert_true(precedes(&killed, early, &memory, early));
    assert_false(precedes(&memory, early, &killed, early));
    assert_true(precedes(&hung, later, &code, early)); /* we ended it: its messages are no cascade */
    assert_int_equal(failure_exit_code(&hung), 134);
    assert_int_equal(failure_exit_code(&killed), 137);
    assert_int_equal(failure_exit_code(&lost), EXIT_CODE_NODE);
    assert_int_equal(failure_exit_code(&code), EXIT_CODE_FAILURE);
    assert_string_equal(failure_class_name(failure_class_of(&memory)), "signal");
}

static void names_are_printable(void **state)
{
    (void)state;
    assert_string_equal(roster_job_state_name(JOB_FORMING), "FORMING");
    assert_string_equal(roster_member_state_name(MEMBER_DONE_GONE), "DONE_GONE");
    assert_string_equal(roster_event_name(ROSTER_DISCONNECT), "DISCONNECT");
    assert_string_equal(roster_action_name(ROSTER_AGAIN), "AGAIN");
    assert_string_equal(roster_job_state_name(JOB_STATE_COUNT), "?");
    assert_string_equal(roster_report_name(MEMBERSHIP_REPORT_STOPPED), "STOPPED");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_broken_protocol_is_an_error),
        WITH_WORLD(who_stops_unasked_costs_a_restart),
        WITH_WORLD(a_done_agent_may_stop_unasked),
        WITH_WORLD(a_done_agent_that_is_needed_fails_the_round),
        WITH_WORLD(a_worker_that_ended_and_is_needed_fails_the_round),
        WITH_WORLD(a_done_agent_is_not_blamed_for_a_lost_node),
        WITH_WORLD(each_node_is_heard_before_another_one_is_blamed),
        WITH_WORLD(a_missed_peer_without_a_done_agent_is_no_failure),
        WITH_WORLD(a_node_that_dies_with_a_worker_costs_no_restart_of_its_own),
        WITH_WORLD(what_completes_a_report_takes_its_place),
        WITH_WORLD(what_completes_an_unknown_report_is_one),
        WITH_WORLD(a_stronger_cause_restarts_all_the_same),
        WITH_WORLD(what_a_restart_does_not_mend_ends_the_job),
        WITH_WORLD(the_first_cause_is_found_among_many),
        WITH_WORLD(of_many_failures_the_best_are_kept),
        WITH_WORLD(of_equal_failures_the_first_are_kept),
        WITH_WORLD(a_late_joiner_is_told_how_it_ended),
        cmocka_unit_test(causes_are_ranked),
        cmocka_unit_test(names_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
