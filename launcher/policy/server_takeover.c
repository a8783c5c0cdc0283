/* server_takeover.c - see server_takeover.h. */
#include "launcher/policy/server_takeover.h"

#include "rendezvous/roster/mutation.h"

static const int64_t serve_every_ns = NS_PER_S, look_up_every_ns = 5 * NS_PER_S;

bool succession_joins_holder(bool elastic, bool must_serve, bool same_program)
{
    return elastic && !must_serve && same_program;
}

/* Workers of the old world may still run here. */
static bool may_serve(const struct succession *succession, const struct succession_view *view)
{
    bool waits = view->waits || MUTATED(MUTATION_HEIR_TRAINS);
    return succession->next && waits && view->may_succeed && !MUTATED(MUTATION_HEIR_WAITS);
}

enum succession_step succession_next(struct succession *succession, const struct succession_view *view,
                                     struct instant now)
{
    /* A name that is not this machine's own may stand for another one by now: it is looked up first. */
    if (may_serve(succession, view) && view->choice == SERVER_CHOICE_SERVE &&
        instant_reached(now, succession->serve_at)) {
        succession->serve_at = instant_add(now, serve_every_ns);
        return SUCCESSION_SERVE;
    }
    if (!view->silent || !view->named || !instant_reached(now, succession->look_up_at))
        return SUCCESSION_WAIT;
    succession->look_up_at = instant_add(now, look_up_every_ns);
    return SUCCESSION_LOOK_UP;
}

bool succession_serves(const struct succession *succession, const struct succession_view *view, bool is_here)
{
    return is_here && may_serve(succession, view);
}
