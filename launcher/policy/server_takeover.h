/* server_takeover.h - pure: when an agent takes over the serving of an elastic job from another one of its
 * machine.
 *
 * Several agents of one machine may have the endpoint's address. The first that binds the port serves, the
 * others join it, and each of them is next where that one goes: the port is the lock, and a process that
 * stands still holds it. */
#ifndef MUSTER_LAUNCHER_POLICY_SERVER_TAKEOVER_H
#define MUSTER_LAUNCHER_POLICY_SERVER_TAKEOVER_H

#include <stdbool.h>

#include "launcher/policy/server_choice.h"
#include "proto/base/clock.h"

struct succession {
    bool next;                 /* another agent of this machine serves; where it goes, this one may */
    struct instant serve_at;   /* may be tried again */
    struct instant look_up_at; /* the server's name may be looked up again */
};

/* What the agent sees now. */
struct succession_view {
    bool waits;                /* for a world: no workers, and not at its end */
    bool may_succeed;          /* its seat says so (membership_may_succeed) */
    bool silent;               /* the server was not heard for long enough to miss it */
    bool named;                /* the endpoint is a name, which may stand for another address by now */
    enum server_choice choice; /* where may_succeed: server_choose */
};

enum succession_step {
    SUCCESSION_WAIT,
    SUCCESSION_SERVE,  /* try to bind the port, and serve where that succeeds */
    SUCCESSION_LOOK_UP /* look the server's name up, and ask succession_serves with what was found */
};

/* Whether an agent that finds the port taken joins whoever holds it; else that is an error. must_serve: it
 * was told to be the server. */
bool succession_joins_holder(bool elastic, bool must_serve, bool same_program);
/* What to do now; notes when it may be done again. */
enum succession_step succession_next(struct succession *succession, const struct succession_view *view,
                                     struct instant now);
/* The name was looked up: whether to try and serve. is_here: server_choose_resolved. */
bool succession_serves(const struct succession *succession, const struct succession_view *view, bool is_here);

#endif
