/* rendezvous_roster_walk_test.c - the roster by itself under random agents: they follow its messages,
 * or not; they claim, leave, drain, fail, come back and send what no agent should. One line a seed, with all
 * that the roster sent and reported, its texts too, in one number (walk.h). The simulation's digests are of
 * whole jobs that behave. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/event_numbers.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 400, JOBS = 30, STEPS = 200, AGENTS = 7 };

struct agent {
    char name[16];
    struct agent_incarnation incarnation;
    uint64_t session; /* 0: it has none */
    int slot;
    uint64_t sequence;
    struct world_id held, last;
    int last_rank, last_nodes;
    bool running, stopping; /* its workers run; it was sent a STOP */
    bool done;
    bool server_done; /* the former server's workers were, too */
};

struct jobs {
    struct walk walk;
    struct roster_options options;
    struct roster *roster;
    struct roster_actions actions;
    struct instant now, formed; /* formed: the last world */
    bool fair;                  /* agents join as they are */
    bool continued;             /* a former server's world */
    uint64_t sessions, incarnations;
    int host; /* the slot of the hosting agent, or of the last one; -1: there was none */
    struct agent agents[AGENTS];
};

/* Waits at and next to their ends too. */
static int64_t random_wait(struct walk *walk)
{
    static const int64_t waits[] = {
        -1,           0,           0, 1, NS_PER_S / 2, NS_PER_S, 2 * NS_PER_S + 1, NS_PER_S, 3 * NS_PER_S,
        5 * NS_PER_S, 8 * NS_PER_S};
    return walk_pick(walk, waits);
}

static struct roster_options random_options(struct walk *walk)
{
    bool elastic = walk_one_in(walk, 2);
    int most = 1 + (int)walk_below(walk, 4);
    return (struct roster_options){
        .job_id = walk_one_in(walk, 3) ? "none" : "job",
        .min_nodes = elastic ? 1 + (int)walk_below(walk, most) : most,
        .max_nodes = most,
        .elastic = elastic,
        .max_restarts = walk_below(walk, 5) - 1,
        .epoch = 42,
        .join_timeout_ns = 1 + walk_below(walk, 20 * NS_PER_S),
        .last_call_ns = random_wait(walk),
        .regroup_ns = random_wait(walk),
        .notice_ns = random_wait(walk),
        .restart_count = walk_below(walk, 2),
        .backoff_ns = random_wait(walk) / 4,
        .backoff_cap_ns = random_wait(walk),
        .jitter = (uint64_t)walk_below(walk, 1000),
        .lost_after_ns = random_wait(walk),
        .stop_timeout_ns = random_wait(walk),
        .exit_barrier_ns = random_wait(walk),
    };
}

/* -- messages and reports of the roster -- */

static void saw_id(struct walk *walk, struct world_id id)
{
    walk_saw_number(walk, (int64_t)id.epoch);
    walk_saw_number(walk, id.round);
}

static void saw_failure(struct walk *walk, const struct worker_failure *f)
{
    const int64_t numbers[] = {f->rank,   f->local_rank, f->group_rank, f->pid,    f->exit_code,
                               f->signal, f->lost_node,  f->after_stop, f->age_ns, f->completes};
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, f->host);
    walk_saw_text(walk, f->message);
}

static void saw_event(struct walk *walk, const struct membership_event *event)
{
    int64_t numbers[EVENT_NUMBERS];
    event_numbers(event, numbers);
    walk_saw(walk, numbers, sizeof numbers);
    walk_saw_text(walk, event->world.master_addr);
    walk_saw_text(walk, event->reason);
    if (!event->failed)
        return;
    saw_failure(walk, &event->failure);
    for (int i = 0; i < event->other_count; i++) {
        const struct failure_brief *other = &event->others[i];
        const int64_t brief[] = {other->rank,   other->group_rank, other->pid,      other->class_,
                                 other->signal, other->exit_code,  other->after_ns, other->wall_ns};
        walk_saw(walk, brief, sizeof brief);
        walk_saw_text(walk, other->host);
        walk_saw_text(walk, other->excerpt);
    }
}

static void saw_roster(struct jobs *j)
{
    const struct roster *roster = j->roster;
    struct walk *walk = &j->walk;
    scope_buffer line = {0};
    char text[MUSTER_ERROR_TEXT] = "";
    assert_int_equal(roster_format(roster, &line), 0);
    walk_saw_text(walk, line.data);
    roster_describe_progress(roster, text, sizeof text);
    walk_saw_text(walk, text);
    roster_describe_refused(roster, text, sizeof text);
    walk_saw_text(walk, text);
    for (int slot = -1; slot < roster_slot_count(roster); slot++) {
        text[0] = '\0';
        walk_saw_number(walk, roster_describe_other_program(roster, slot, text, sizeof text));
        walk_saw_text(walk, text);
        walk_saw_number(walk, (int64_t)roster_report_sequence(roster, slot));
    }
    walk_saw_number(walk, (int64_t)roster_report_sequence(roster, roster_slot_count(roster)));
    walk_saw_number(walk, roster_deadline(roster).ns);
    saw_id(walk, roster_server_done(roster));
    saw_id(walk, roster_world_id(roster));
    walk_saw_number(walk, roster_holds_server(roster));
    walk_saw_number(walk, roster_remote_count(roster));
    walk_saw_number(walk, roster_has_remote(roster));
}

static struct agent *agent_of(struct jobs *j, uint64_t session)
{
    for (int i = 0; i < AGENTS; i++)
        if (j->agents[i].session == session)
            return &j->agents[i];
    return NULL;
}

static void follow(struct jobs *j, const struct roster_action *action, const struct membership_event *event)
{
    struct agent *agent = agent_of(j, action->session);
    if (!agent)
        return;
    if (action->kind == ROSTER_ACCEPT) {
        agent->slot = action->member;
    } else if (action->kind == ROSTER_SEND_WORLD) {
        agent->held = agent->last = event->world.id;
        agent->last_rank = event->world.group_rank;
        agent->last_nodes = event->world.group_world_size;
        agent->running = agent->stopping = agent->done = agent->server_done = false;
        j->formed = j->now;
    } else if (action->kind == ROSTER_SEND_STOP) {
        agent->stopping = true;
    } else if (action->kind == ROSTER_REFUSE) {
        agent->session = 0;
        if (!walk_one_in(&j->walk, 4))
            agent->incarnation.low = 0; /* it ends, and is started again */
    }
}

static void step(struct jobs *j, const struct roster_event *event)
{
    static struct membership_event sent;
    struct muster_error err = {0};
    struct walk *walk = &j->walk;
    int result = roster_step(j->roster, event, j->now, &j->actions, &err);
    walk_saw_number(walk, result);
    walk_saw_text(walk, result < 0 ? err.text : NULL);
    for (size_t i = 0; i < j->actions.count; i++) {
        const struct roster_action *action = &j->actions.items[i];
        walk_saw_number(walk, action->kind);
        walk_saw_number(walk, (int64_t)action->session);
        walk_saw_number(walk, action->member);
        if (action->kind != ROSTER_ACCEPT && action->kind != ROSTER_AGAIN &&
            action->kind != ROSTER_HANDOVER) {
            roster_fill_event(j->roster, action, &sent);
            saw_event(walk, &sent);
        }
        follow(j, action, &sent);
    }
    saw_roster(j);
    if (!j->continued && roster_state(j->roster) == JOB_RUNNING && roster_world_id(j->roster).epoch == 41) {
        j->continued = true;
        j->formed = j->now;
    }
}

/* -- actions of the agents -- */

static char at_most[ROSTER_ROLE_LIMIT * 8];

/* A text of a length next to a limit. */
static const char *long_text(struct walk *walk, size_t limit)
{
    size_t length = limit - 2 + (size_t)walk_below(walk, 3);
    memset(at_most, 'x', length);
    at_most[length] = '\0';
    return at_most;
}

/* One thing about a JOIN for which it may be rejected. */
static void spoil(struct walk *walk, struct roster_join *join)
{
    static const char *const odd[] = {"", "a b", "a\nb", "a\x7f", "\x1f", " ", NULL};
    switch (walk_below(walk, 16)) {
    case 0:
        join->protocol_version += (int)walk_below(walk, 3) - 1;
        break;
    case 1:
        join->job_id = walk_one_in(walk, 2) ? "another" : NULL;
        break;
    case 2:
        join->elastic = !join->elastic;
        break;
    case 3:
        join->max_nodes++;
        break;
    case 4:
        join->min_nodes--;
        break;
    case 5:
        join->agent_name =
            walk_one_in(walk, 2) ? walk_pick(walk, odd) : long_text(walk, MEMBERSHIP_NAME_LIMIT);
        break;
    case 6:
        join->role = walk_one_in(walk, 2) ? walk_pick(walk, odd) : long_text(walk, ROSTER_ROLE_LIMIT);
        break;
    case 7:
        join->program =
            walk_one_in(walk, 2) ? walk_pick(walk, odd) : long_text(walk, MEMBERSHIP_PROGRAM_LIMIT);
        break;
    case 8:
        join->store_addr =
            walk_one_in(walk, 2) ? walk_pick(walk, odd) : long_text(walk, MEMBERSHIP_NAME_LIMIT);
        break;
    case 9:
        join->local_world_size = walk_one_in(walk, 2) ? ROSTER_LOCAL_WORLD_LIMIT + (int)walk_below(walk, 2)
                                                      : (int)walk_below(walk, 2);
        break;
    case 10:
        join->node_rank = (int)walk_below(walk, 8) - 2;
        break;
    case 11:
        if (walk_one_in(walk, 2))
            join->incarnation.high = 0;
        if (walk_one_in(walk, 2))
            join->incarnation.low = 0;
        break;
    case 12:
        join->restart_count = walk_below(walk, 4) - 1;
        break;
    case 13:
        join->last.round += (uint32_t)walk_below(walk, 3);
        join->last.epoch = 41;
        join->last_nodes = (int)walk_below(walk, 5);
        join->epoch = 41;
        break;
    case 14:
        join->held = join->last = (struct world_id){41, (uint32_t)walk_below(walk, 3)};
        join->last_rank = (int)walk_below(walk, 5) - 1;
        join->last_nodes = join->max_nodes;
        join->epoch = 41;
        break;
    default:
        join->server_done = walk_one_in(walk, 2);
        join->server_left = walk_one_in(walk, 2);
        join->lapsed = walk_one_in(walk, 4);
        join->held_done = walk_one_in(walk, 2);
        join->epoch = 41;
        break;
    }
}

/* There is one at a time, and it keeps its slot. */
static void host(struct jobs *j, struct roster_join *join)
{
    const enum roster_member_state state = roster_member_state(j->roster, j->host);
    const bool again = agent_incarnation_equal(roster_incarnation(j->roster, j->host), join->incarnation);
    join->local = again || state == MEMBER_EMPTY || state == MEMBER_DONE_GONE;
    if (again)
        join->node_rank = j->host;
}

static void joins(struct jobs *j, int i)
{
    static const char *const roles[] = {"", "trainer", "reader"};
    struct agent *agent = &j->agents[i];
    struct walk *walk = &j->walk;
    if (!agent->incarnation.low || (!j->fair && walk_one_in(walk, 6))) { /* a new start */
        *agent = (struct agent){.incarnation = {7, ++j->incarnations}, .last_rank = -1};
        (void)snprintf(agent->name, sizeof agent->name, "node%s%d", i % 3 ? "" : "0",
                       walk_one_in(walk, 8) ? 10 : i % 5);
    }
    agent->session = ++j->sessions;
    struct roster_join join = {
        .protocol_version = ROSTER_PROTOCOL_VERSION,
        .job_id = j->options.job_id,
        .min_nodes = j->options.min_nodes,
        .max_nodes = j->options.max_nodes,
        .elastic = j->options.elastic,
        .agent_name = agent->name,
        .node_rank = walk_one_in(walk, 3) ? -1 : i % j->options.max_nodes,
        .incarnation = agent->incarnation,
        .local_world_size = 1 + i % 3,
        .role = roles[i % 3],
        .command = walk_one_in(walk, 5) ? (uint64_t)walk_below(walk, 3) : 1,
        .program = walk_one_in(walk, 5) ? NULL : "train.py",
        .store_addr = agent->name,
        .store_port = (uint16_t)(29500 + i),
        .held = agent->held,
        .held_done = agent->done,
        .server_done = agent->server_done,
        .last = agent->last,
        .last_nodes = agent->last_nodes,
        .last_rank = agent->last_rank,
        .epoch = agent->last.epoch,
    };
    if (!j->fair && walk_one_in(walk, 4))
        spoil(walk, &join);
    if (i == 0)
        host(j, &join);
    const struct roster_event event = {.kind = ROSTER_JOIN, .session = agent->session, .join = &join};
    step(j, &event);
    const struct roster_actions *actions = &j->actions;
    if (actions->count == 1 && actions->items[0].kind == ROSTER_AGAIN && (j->fair || !walk_one_in(walk, 4))) {
        join.proof = actions->items[0].proof;
        step(j, &event);
    }
    if (join.local && agent_incarnation_equal(roster_incarnation(j->roster, agent->slot), join.incarnation))
        j->host = agent->slot;
}

static struct worker_failure random_failure(struct walk *walk, int rank)
{
    struct worker_failure failure = {.rank = rank,
                                     .local_rank = (int)walk_below(walk, 2),
                                     .pid = 100 + (int)walk_below(walk, 3),
                                     .exit_code = 1 + (int)walk_below(walk, 3),
                                     .age_ns = (walk_below(walk, 4) - 1) * NS_PER_S / 2,
                                     .completes = walk_one_in(walk, 3),
                                     .after_stop = walk_one_in(walk, 5)};
    if (walk_one_in(walk, 3)) {
        failure.exit_code = -1;
        failure.signal = walk_one_in(walk, 2) ? SIGSEGV : SIGKILL;
    }
    (void)snprintf(failure.host, sizeof failure.host, "host%d", rank);
    (void)snprintf(failure.message, sizeof failure.message, "%s",
                   walk_one_in(walk, 3)   ? "ValueError: no"
                   : walk_one_in(walk, 2) ? "Connection reset by peer"
                                          : "");
    return failure;
}

/* Mostly the next state of its workers. */
static void reports(struct jobs *j, struct agent *agent)
{
    struct walk *walk = &j->walk;
    struct worker_failure failure = random_failure(walk, agent->last_rank);
    enum membership_report_kind kind = agent->stopping        ? MEMBERSHIP_REPORT_STOPPED
                                       : !agent->running      ? MEMBERSHIP_REPORT_RUNNING
                                       : walk_one_in(walk, 2) ? MEMBERSHIP_REPORT_DONE
                                                              : MEMBERSHIP_REPORT_FAILED;
    if (walk_one_in(walk, 6))
        kind = (enum membership_report_kind)walk_below(walk, 6);
    struct roster_event event = {.kind = ROSTER_REPORT, .session = agent->session, .member = agent->slot};
    event.report.kind = kind;
    event.report.id = agent->held;
    event.report.id.round += walk_one_in(walk, 20);
    event.report.sequence = agent->sequence += !walk_one_in(walk, 10);
    event.report.failure = walk_one_in(walk, 20) ? NULL : &failure;
    agent->running |= kind == MEMBERSHIP_REPORT_RUNNING;
    agent->done |= kind == MEMBERSHIP_REPORT_DONE;
    if (kind == MEMBERSHIP_REPORT_STOPPED) {
        agent->held = (struct world_id){0};
        agent->stopping = agent->running = false;
    }
    step(j, &event);
}

/* More failures than are kept, of which some are alike. */
static void storm(struct jobs *j, struct agent *agent)
{
    struct roster_event event = {.kind = ROSTER_REPORT, .session = agent->session, .member = agent->slot};
    event.report.kind = MEMBERSHIP_REPORT_FAILED;
    event.report.id = agent->held;
    for (int i = 0; i < FAILURE_OTHERS_LIMIT + 4; i++) {
        struct worker_failure failure = random_failure(&j->walk, agent->last_rank);
        failure.completes = failure.completes && walk_one_in(&j->walk, 4);
        event.report.sequence = ++agent->sequence;
        event.report.failure = &failure;
        step(j, &event);
    }
}

static void ticks(struct jobs *j)
{
    struct instant due = roster_deadline(j->roster);
    struct instant round =
        instant_add(j->formed, walk_one_in(&j->walk, 3) ? j->options.backoff_cap_ns
                                                        : walk_below(&j->walk, 9) * j->options.regroup_ns);
    if (round.ns >= j->now.ns && walk_one_in(&j->walk, 4))
        j->now = round; /* so old is the world exactly */
    else if (due.ns != INSTANT_NEVER.ns && due.ns > j->now.ns && walk_one_in(&j->walk, 2))
        j->now.ns = due.ns - walk_below(&j->walk, 2); /* at it, or just before */
    else
        j->now.ns += walk_below(&j->walk, 3 * NS_PER_S);
    step(j, &(struct roster_event){.kind = ROSTER_TICK});
}

static void one_move(struct jobs *j)
{
    static const int64_t graces[] = {-1, 0, 1, 5 * NS_PER_S};
    static const int codes[] = {0, 0, 1, EXIT_CODE_TERMINATED, EXIT_CODE_NODE, 7};
    struct walk *walk = &j->walk;
    int i = (int)walk_below(walk, AGENTS);
    struct agent *agent = &j->agents[i];
    int64_t what = walk_below(walk, 40);
    if (!walk_one_in(walk, 4))
        j->now.ns += walk_below(walk, NS_PER_S / 20);
    if (what < 7)
        ticks(j);
    else if (what == 7)
        roster_wake(j->roster, j->now);
    else if (what == 8)
        roster_move_store(j->roster, (uint16_t)(30000 + walk_below(walk, 9)));
    else if (what == 9)
        step(j, &(struct roster_event){.kind =
                                           (enum roster_event_kind)walk_below(walk, ROSTER_EVENT_COUNT + 1)});
    else if (!agent->session || what < 12)
        joins(j, i);
    else if (what == 12) { /* a message of no member */
        step(j,
             &(struct roster_event){.kind = walk_one_in(walk, 2) ? ROSTER_BEAT : ROSTER_LEAVE,
                                    .session = walk_one_in(walk, 2) ? agent->session : 1,
                                    .member = (int)walk_below(walk, roster_slot_count(j->roster) + 2) - 1});
    } else if (what == 13) {
        step(j, &(struct roster_event){.kind = ROSTER_LEAVE,
                                       .session = agent->session,
                                       .member = agent->slot,
                                       .exit_code = walk_pick(walk, codes)});
        *agent = (struct agent){.last_rank = -1};
    } else if (what == 14 && walk_one_in(walk, 2)) {
        static const char *const nodes[] = {"0", "2", "9", "node1", "a"};
        const struct membership_evict evict = {.number = 3,
                                               .node = walk_pick(walk, nodes),
                                               .without_spare = walk_one_in(walk, 2),
                                               .agent = walk_one_in(walk, 2) ? agent->incarnation
                                                                             : (struct agent_incarnation){0}};
        step(j, &(struct roster_event){
                    .kind = ROSTER_EVICT, .session = agent->session, .member = agent->slot, .evict = &evict});
    } else if (what == 14) {
        step(j, &(struct roster_event){.kind = ROSTER_DRAIN,
                                       .session = agent->session,
                                       .member = agent->slot,
                                       .exit_code = walk_pick(walk, codes),
                                       .grace_ns = walk_pick(walk, graces)});
    } else if (what == 15) {
        step(j, &(struct roster_event){
                    .kind = ROSTER_DISCONNECT, .session = agent->session, .member = agent->slot});
        agent->session = 0;
    } else if (what == 16 && walk_one_in(walk, 8)) {
        storm(j, agent);
    } else if (what < 20) {
        const int missing = what == 19 ? (int)walk_below(walk, 5) : 0;
        step(j, &(struct roster_event){.kind = ROSTER_BEAT,
                                       .session = agent->session,
                                       .member = agent->slot,
                                       .missing = missing,
                                       .ended = what == 18 ? (int)walk_below(walk, 5) : 0});
    } else {
        reports(j, agent);
    }
}

/* A server begins again: the agents of its former one come back, mostly with their workers. */
static void former_world(struct jobs *j)
{
    struct walk *walk = &j->walk;
    const struct world_id id = {41, (uint32_t)walk_below(walk, 3)};
    const int most = j->options.max_nodes, least = j->options.min_nodes;
    const int nodes = least + (int)walk_below(walk, most - least + 1);
    const bool alone = walk_one_in(walk, 6); /* the server had workers left */
    for (int i = 1; i < nodes; i++) {
        struct agent *agent = &j->agents[i];
        *agent = (struct agent){.incarnation = {7, ++j->incarnations},
                                .held = id,
                                .last = id,
                                .last_rank = walk_one_in(walk, 20) ? (int)walk_below(walk, nodes + 2) - 1 : i,
                                .last_nodes = nodes,
                                .running = true,
                                .done = walk_one_in(walk, 4),
                                .server_done = !alone && !walk_one_in(walk, 30)};
        (void)snprintf(agent->name, sizeof agent->name, "node%d", i);
    }
    j->fair = !walk_one_in(walk, 4);
    for (int i = 0; i < nodes; i++)
        if (!walk_one_in(walk, 20))
            joins(j, i);
    j->fair = false;
}

/* How the job ended, and whether it began as another server's. */
static enum roster_job_state walk_one(struct walk *walk, bool *continued)
{
    struct jobs j = {.walk = *walk, .now = {100 * NS_PER_S}, .host = -1};
    struct muster_error err = {0};
    j.options = random_options(&j.walk);
    j.roster = roster_create(&j.options, j.now, &err);
    assert_non_null(j.roster);
    assert_int_equal(roster_actions_init(&j.actions, roster_slot_count(j.roster), &err), 0);
    if (walk_one_in(&j.walk, 2))
        former_world(&j);
    for (int i = 0; i < STEPS; i++) {
        one_move(&j);
        if (roster_state(j.roster) >= JOB_DEPARTED && walk_one_in(&j.walk, 12))
            break;
    }
    enum roster_job_state end = roster_state(j.roster);
    *walk = j.walk;
    *continued = j.continued;
    roster_actions_free(&j.actions);
    roster_destroy(j.roster);
    return end;
}

static void random_agents_are_answered_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    int ends[JOB_STATE_COUNT] = {0}, continued = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        for (int i = 0; i < JOBS; i++) {
            bool also;
            ends[walk_one(&walk, &also)]++;
            continued += also;
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    for (int end = JOB_DEPARTED; end < JOB_STATE_COUNT; end++)
        assert_int_not_equal(ends[end], 0); /* or the walks do not go far */
    assert_true(continued > SEEDS);
    golden_check("tests/unit/rendezvous/golden/roster_walks.txt", &text);
}

/* One option at, or next to, where it is rejected. */
static void options_are_rejected_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    char id[MEMBERSHIP_NAME_LIMIT + 1];
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct roster_options options = random_options(&walk);
        struct muster_error err = {0};
        size_t length = MEMBERSHIP_NAME_LIMIT - (size_t)walk_below(&walk, 3);
        memset(id, 'j', sizeof id);
        id[length] = '\0';
        switch (walk_below(&walk, 6)) {
        case 0:
            options.min_nodes = (int)walk_below(&walk, 7) - 1;
            break;
        case 1:
            options.max_nodes = (int)walk_below(&walk, 7) - 1;
            break;
        case 2:
            options.max_nodes = ROSTER_MEMBER_LIMIT + (int)walk_below(&walk, 3) - 1;
            if (!options.elastic)
                options.min_nodes = options.max_nodes;
            break;
        case 3:
            options.job_id = walk_one_in(&walk, 4) ? NULL : id;
            break;
        case 4:
            options.epoch = (uint64_t)walk_below(&walk, 2);
            break;
        default:
            options.join_timeout_ns = walk_below(&walk, 3) - 1;
            break;
        }
        struct roster *roster = roster_create(&options, (struct instant){0}, &err);
        buffer_printf(&text, "%llu: %s %d\n", (unsigned long long)seed, roster ? "taken" : err.text,
                      roster ? roster_slot_count(roster) : 0);
        roster_destroy(roster);
    }
    golden_check("tests/unit/rendezvous/golden/roster_options.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_agents_are_answered_as_they_were),
                                       cmocka_unit_test(options_are_rejected_as_they_were)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
