/* hang.c - see hang.h. */
#include "launcher/policy/hang.h"

#include <assert.h>

static const int64_t answer_bound_ns = 5 * NS_PER_S, /* a handler that writes stacks is quick, or hangs too */
    abort_bound_ns = 10 * NS_PER_S; /* the remaining workers are stopped as after any failure */

const char *hang_state_name(enum hang_state state)
{
#define HANG_NAME(symbol, name, ...) [symbol] = (name),
    static const char *const names[] = {HANG_STATES(HANG_NAME)};
#undef HANG_NAME
    return (unsigned)state < HANG_STATE_COUNT ? names[state] : "?";
}

struct cell {
    enum hang_action action;
    enum hang_state next;
};

/* Columns: STALLED, ANSWERED, GONE, DEADLINE, RESET. */
static const struct cell table[HANG_STATE_COUNT][HANG_EVENT_COUNT] = {
    [HANG_WATCHING] = {{HANG_ASK, HANG_ASKING}, {0}, {0}, {0}, {0}},
    [HANG_ASKING] = {{HANG_NOTHING, HANG_ASKING},
                     {HANG_ABORT, HANG_ABORTING},
                     {HANG_TELL, HANG_WATCHING},
                     {HANG_ABORT, HANG_ABORTING},
                     {0}},
    [HANG_ABORTING] = {{HANG_NOTHING, HANG_ABORTING},
                       {HANG_NOTHING, HANG_ABORTING},
                       {HANG_TELL, HANG_WATCHING},
                       {HANG_TELL, HANG_WATCHING},
                       {0}},
};

enum hang_action hang_step(struct hang *hang, enum hang_event event, struct instant now)
{
    const struct cell *cell = &table[hang->state][event];
    if (cell->next != hang->state) {
        const int64_t bounds[] = {[HANG_ASKING] = answer_bound_ns, [HANG_ABORTING] = abort_bound_ns};
        hang->deadline = cell->next == HANG_WATCHING ? INSTANT_NEVER : instant_add(now, bounds[cell->next]);
    }
    hang->state = cell->next;
    assert((hang->state == HANG_WATCHING) == (hang->deadline.ns == INSTANT_NEVER.ns));
    return cell->action;
}
