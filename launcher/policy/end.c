/* end.c - see end.h. */
#include "launcher/policy/end.h"

#include <signal.h>

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
    if (state != GROUP_STOPPING || leaving || clean)
        return END_STOPPED;
    return exited || answers_a_stop(status) ? END_SUSPECT : END_TOLD;
}
