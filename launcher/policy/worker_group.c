/* worker_group.c - see worker_group.h. */
#include "launcher/policy/worker_group.h"

#include <assert.h>
#include <signal.h>

#include "proto/base/error.h"
#include "proto/exit_code.h"

#define GROUP_NAME(symbol, name, ...) [symbol] = (name),

const char *worker_group_state_name(enum worker_group_state state)
{
    static const char *const names[] = {GROUP_STATES(GROUP_NAME)};
    return (unsigned)state < GROUP_STATE_COUNT ? names[state] : "?";
}

const char *worker_group_state_meaning(enum worker_group_state state)
{
#define GROUP_MEANING(symbol, name, meaning) [symbol] = (meaning),
    static const char *const meanings[] = {GROUP_STATES(GROUP_MEANING)};
#undef GROUP_MEANING
    return (unsigned)state < GROUP_STATE_COUNT ? meanings[state] : "?";
}

const char *worker_group_event_name(enum worker_group_event_kind kind)
{
    static const char *const names[] = {GROUP_EVENTS(GROUP_NAME)};
    return (unsigned)kind < GROUP_EVENT_COUNT ? names[kind] : "?";
}

const char *worker_group_action_name(enum worker_group_action action)
{
    static const char *const names[] = {GROUP_ACTIONS(GROUP_NAME)};
    return (unsigned)action < GROUP_ACTION_COUNT ? names[action] : "?";
}

/* A server that does not respond for so long does not serve. */
static const int64_t drain_answer_ns = NS_PER_S;

struct step {
    struct worker_group *group;
    const struct worker_group_event *event;
    struct instant now;
    unsigned actions;
};

static void act(struct step *s, enum worker_group_action action)
{
    s->actions |= 1u << action;
}

/* --- shared by several cells --- */

/* The first decision on the exit code is final. */
static void decide(struct step *s, int exit_code)
{
    if (s->group->leaving)
        return;
    s->group->leaving = true;
    s->group->exit_code = exit_code;
}

static void over(struct step *s)
{
    s->group->state = GROUP_OVER;
    s->group->deadline = INSTANT_NEVER;
    act(s, GROUP_LEAVE);
    act(s, GROUP_EXIT);
}

static void stopped(struct step *s)
{
    s->group->deadline = INSTANT_NEVER;
    s->group->state = GROUP_WAITING;
    s->group->stop_asked = false;
    act(s, GROUP_REPORT_STOPPED);
}

/* The next round would fail on processes left by this one. */
static void clean(struct step *s)
{
    s->group->state = GROUP_CLEANING;
    s->group->deadline = instant_add(s->now, s->group->clean_bound_ns);
    act(s, GROUP_CLEAN);
}

static void begin_stop(struct step *s, int signal, int64_t grace_ns)
{
    s->group->state = GROUP_STOPPING;
    s->group->signal = signal;
    s->group->deadline = instant_add(s->now, grace_ns);
    act(s, GROUP_TERMINATE);
}

/* The others wait for peers that have gone. Workers that can stay keep their memory. */
static void begin_hold(struct step *s)
{
    if (!s->group->keeps) {
        begin_stop(s, SIGTERM, s->group->restart_grace_ns);
        return;
    }
    s->group->state = GROUP_HOLDING;
    s->group->signal = SIGTERM;
    s->group->deadline = instant_add(s->now, s->group->hold_ns);
    act(s, GROUP_HOLD);
}

/* SAVING ends so long before its KILL: a worker that did not use the time needs no more than after a
 * failure. */
static int64_t last_ns(const struct step *s, int64_t grace_ns)
{
    const int64_t half_ns = grace_ns / 2, restart_ns = s->group->restart_grace_ns;
    return restart_ns < half_ns ? restart_ns : half_ns;
}

/* A planned stop, which can be announced to workers. It takes no longer for workers that handle notices. */
static void begin_announced_stop(struct step *s, int signal, int64_t grace_ns)
{
    struct worker_group *group = s->group;
    if (!group->listens || grace_ns <= 0) {
        begin_stop(s, signal, grace_ns < group->shutdown_grace_ns ? grace_ns : group->shutdown_grace_ns);
        return;
    }
    group->state = GROUP_SAVING;
    group->signal = signal;
    group->kill_at = instant_add(s->now, grace_ns);
    group->deadline = instant_add(group->kill_at, -last_ns(s, grace_ns));
    act(s, GROUP_ANNOUNCE);
}

static int signal_code(const struct step *s)
{
    return EXIT_CODE_SIGNAL_BASE + s->event->signal;
}

/* --- cells --- */

static void ignore(struct step *s)
{
    (void)s;
}

static void start_now(struct step *s)
{
    s->group->state = GROUP_RUNNING;
    s->group->deadline = INSTANT_NEVER;
    s->group->planned = s->group->renews = false;
    act(s, GROUP_START);
}

/* Workers that stayed and cannot take another place. Their end is no failure. */
static void group_start(struct step *s)
{
    if (!s->group->holds || !s->event->elsewhere) {
        start_now(s);
        return;
    }
    s->group->planned = s->group->renews = true;
    begin_stop(s, SIGTERM, s->group->restart_grace_ns);
}

static void group_fail(struct step *s)
{
    act(s, GROUP_REPORT_FAILED);
    begin_hold(s);
}

static void fail_draining(struct step *s)
{
    act(s, GROUP_REPORT_FAILED);
    begin_stop(s, SIGTERM, s->group->restart_grace_ns);
}

/* One more worker that ended before our signal. */
static void fail_too(struct step *s)
{
    act(s, GROUP_REPORT_FAILED);
}

static void succeed(struct step *s)
{
    s->group->state = GROUP_DONE;
    act(s, GROUP_REPORT_DONE);
}

static void stop(struct step *s)
{
    s->group->stop_asked = true;
    s->group->planned = s->event->planned;
    if (s->event->planned && s->event->moves && s->group->keeps)
        begin_hold(s);
    else if (s->event->planned && s->event->grace_ns)
        begin_announced_stop(s, SIGTERM, s->event->grace_ns);
    else if (!s->event->planned && !s->event->grace_ns)
        begin_hold(s);
    else
        begin_stop(s, SIGTERM, s->event->grace_ns ? s->event->grace_ns : s->group->restart_grace_ns);
}

/* The round for which the workers were to be started anew is over. */
static void stop_too(struct step *s)
{
    s->group->stop_asked = true;
    s->group->renews = false;
}

static void end(struct step *s)
{
    decide(s, s->event->exit_code);
    begin_stop(s, SIGTERM, s->group->restart_grace_ns);
}

static void end_too(struct step *s)
{
    decide(s, s->event->exit_code);
}

/* Workers that stayed end first. */
static void leave(struct step *s, int signal, int64_t grace_ns)
{
    if (s->group->holds)
        begin_stop(s, signal, grace_ns);
    else
        over(s);
}

static void end_now(struct step *s)
{
    decide(s, s->event->exit_code);
    leave(s, SIGTERM, s->group->restart_grace_ns);
}

/* Our part is done: an agent that lost us will get the verdict from the others, and we keep our state. */
static void end_done(struct step *s)
{
    decide(s, EXIT_CODE_OK);
    begin_stop(s, SIGTERM, s->group->restart_grace_ns);
}

static void quit_alone(struct step *s)
{
    act(s, GROUP_LEAVE);
    begin_announced_stop(s, s->group->signal, s->group->shutdown_grace_ns);
}

/* The last worker exited 0 while the stop was being requested. */
static void succeed_last(struct step *s)
{
    act(s, GROUP_REPORT_DONE);
    quit_alone(s);
}

/* All nodes stop, and this agent leaves when its workers have ended. */
static void drain_with_all(struct step *s)
{
    int64_t grace_ns = s->event->grace_ns ? s->event->grace_ns : s->group->shutdown_grace_ns;
    s->group->planned = s->event->planned;
    if (s->event->planned &&
        s->event->moves) /* the others hold the state, and do not wait for a checkpoint */
        begin_stop(s, s->group->signal, s->group->restart_grace_ns);
    else if (s->event->planned)
        begin_announced_stop(s, s->group->signal, grace_ns);
    else
        begin_stop(s, s->group->signal, grace_ns);
}

static void remind(struct step *s)
{
    act(s, GROUP_REMIND);
}

static void quit(struct step *s)
{
    decide(s, signal_code(s));
    if (s->group->drains || (s->group->ends_together && s->group->listens)) {
        s->group->state = GROUP_DRAINING;
        s->group->signal = s->event->signal;
        s->group->deadline = instant_add(s->now, drain_answer_ns);
        act(s, GROUP_DRAIN);
        return;
    }
    act(s, GROUP_LEAVE);
    begin_announced_stop(s, s->event->signal, s->group->shutdown_grace_ns);
}

static void quit_done(struct step *s)
{
    decide(s, signal_code(s));
    s->group->signal = s->event->signal;
    quit_alone(s);
}

/* A signal during the stop neither reverts nor skips a step. */
static void quit_too(struct step *s)
{
    if (s->group->leaving)
        act(s, GROUP_REMIND);
    decide(s, signal_code(s));
    /* Reports to the server that this agent leaves: with a drain if all nodes stop for it, otherwise at once.
     */
    act(s, s->group->drains || (s->group->ends_together && s->group->planned) ? GROUP_DRAIN : GROUP_LEAVE);
}

/* The agent's own time may be shorter than the time announced to the workers. */
static void quit_saving(struct step *s)
{
    struct worker_group *group = s->group;
    struct instant limit = instant_add(s->now, group->shutdown_grace_ns);
    bool shorter = !group->leaving && limit.ns < group->kill_at.ns;
    quit_too(s);
    if (!shorter)
        return;
    group->kill_at = limit;
    group->deadline = instant_min(group->deadline, instant_add(limit, -last_ns(s, group->shutdown_grace_ns)));
    act(s, GROUP_ANNOUNCE);
}

/* The time to save is over, or no worker uses it any more. */
static void stop_saving(struct step *s)
{
    begin_stop(s, s->group->signal, instant_diff_ns(s->group->kill_at, s->now));
}

/* A worker failed in that time: the others cannot finish. */
static void stop_in_saving(struct step *s)
{
    s->group->stop_asked = true;
    if (!s->event->planned)
        begin_stop(s, s->group->signal, s->group->restart_grace_ns);
}

/* Workers that were told to stay are not announced another stop. */
static void quit_held(struct step *s)
{
    quit_too(s);
    begin_stop(s, s->event->signal, s->group->shutdown_grace_ns);
}

static void quit_now(struct step *s)
{
    decide(s, signal_code(s));
    leave(s, s->event->signal, s->group->shutdown_grace_ns);
}

static void empty(struct step *s)
{
    s->group->deadline = INSTANT_NEVER;
    if (s->group->leaving)
        over(s);
    else if (s->group->renews)
        start_now(s);
    else if (s->group->stop_asked)
        clean(s);
    else
        s->group->state = GROUP_HALTED;
}

/* A worker that does not answer is started anew: the others stay. */
static void cull(struct step *s)
{
    s->group->state = GROUP_CULLING;
    s->group->deadline = instant_add(s->now, s->group->kill_bound_ns);
    act(s, GROUP_CULL);
}

static void kill_all(struct step *s)
{
    s->group->state = GROUP_KILLING;
    s->group->deadline = instant_add(s->now, s->group->kill_bound_ns);
    act(s, GROUP_KILL);
}

/* A node with an unkillable process takes part in nothing any more. */
static void give_up(struct step *s)
{
    s->group->leaving = true;
    s->group->exit_code = EXIT_CODE_NODE;
    act(s, GROUP_NAME_STUCK);
    over(s);
}

/* Columns: WORLD, FAILURE, SUCCESS, EMPTY, STOP, VERDICT, SIGNAL, LOST, DEADLINE, CLEANED. NULL: cannot
 * happen. */
static void (*const table[GROUP_STATE_COUNT][GROUP_EVENT_COUNT])(struct step *) = {
    [GROUP_WAITING] = {group_start, NULL, NULL, NULL, stopped, end_now, quit_now, end_now, NULL, ignore},
    [GROUP_RUNNING] = {NULL, group_fail, succeed, NULL, stop, end, quit, end, NULL, ignore},
    [GROUP_DRAINING] = {NULL, fail_draining, succeed_last, NULL, drain_with_all, end, remind, end, quit_alone,
                        ignore},
    [GROUP_SAVING] = {NULL, fail_too, stop_saving, NULL, stop_in_saving, end_too, quit_saving, end_too,
                      stop_saving, ignore},
    [GROUP_HOLDING] = {NULL, fail_too, NULL, empty, stop_too, end, quit_held, end, cull, ignore},
    [GROUP_CULLING] = {NULL, NULL, NULL, empty, stop_too, end, quit_held, end, give_up, ignore},
    [GROUP_STOPPING] = {NULL, fail_too, NULL, empty, stop_too, end_too, quit_too, end_too, kill_all, ignore},
    [GROUP_KILLING] = {NULL, NULL, NULL, empty, stop_too, end_too, quit_too, end_too, give_up, ignore},
    [GROUP_CLEANING] = {NULL, NULL, NULL, NULL, ignore, end_now, quit_now, end_now, stopped, stopped},
    [GROUP_HALTED] = {NULL, NULL, NULL, NULL, clean, end_now, quit_now, end_now, NULL, ignore},
    [GROUP_DONE] = {NULL, NULL, NULL, NULL, stop, end, quit_done, end_done, NULL, ignore},
    [GROUP_OVER] = {ignore, ignore, ignore, ignore, ignore, ignore, remind, ignore, ignore, ignore},
};

int worker_group_step(struct worker_group *group, const struct worker_group_event *event, struct instant now,
                      unsigned *actions, struct muster_error *err)
{
    struct step s = {.group = group, .event = event, .now = now};
    *actions = 0;
    if ((unsigned)event->kind >= GROUP_EVENT_COUNT || !table[group->state][event->kind])
        return error_set(err, MUSTER_E_STATE, "workers that are %s cannot have %s",
                         worker_group_state_name(group->state), worker_group_event_name(event->kind));
    table[group->state][event->kind](&s);
    /* The invariants of worker_group.h on a group and its actions. */
    bool timed = group->state == GROUP_DRAINING || group->state == GROUP_SAVING ||
                 group->state == GROUP_HOLDING || group->state == GROUP_CULLING ||
                 group->state == GROUP_STOPPING || group->state == GROUP_KILLING ||
                 group->state == GROUP_CLEANING;
    const unsigned start = 1U << GROUP_START, leave = 1U << GROUP_EXIT;
    assert(timed == (group->deadline.ns != INSTANT_NEVER.ns));
    assert(!(s.actions & leave) || group->leaving);
    assert((s.actions & (start | leave)) != (start | leave)); /* a leaving agent starts no workers */
    *actions = s.actions;
    return 0;
}

bool worker_group_wants_empty(const struct worker_group *group)
{
    return group->state == GROUP_STOPPING || group->state == GROUP_KILLING || worker_group_is_holding(group);
}

bool worker_group_is_holding(const struct worker_group *group)
{
    return group->state == GROUP_HOLDING || group->state == GROUP_CULLING;
}

const char *end_kind_name(enum end_kind kind)
{
    static const char *const names[] = {
#define END_NAME(symbol, name, meaning) [symbol] = (name),
        END_KINDS(END_NAME)
#undef END_NAME
    };
    return (unsigned)kind < END_KIND_COUNT ? names[kind] : "?";
}

/* The signals that a stopped process may die of: the signal itself, another stop signal raised by its
 * handler, or SIGPIPE if its reader was faster. */
static bool answers_a_stop(int signal)
{
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT ||
           signal == SIGPIPE;
}

enum end_kind end_kind_of(enum worker_group_state state, bool leaving, bool exited, int status)
{
    bool clean = exited && status == 0;
    if (state == GROUP_RUNNING || state == GROUP_DRAINING)
        return clean ? END_DONE : END_OWN;
    if ((state != GROUP_STOPPING && state != GROUP_HOLDING) || leaving || clean)
        return END_STOPPED;
    return exited || answers_a_stop(status) ? END_SUSPECT : END_AFTER_STOP;
}
