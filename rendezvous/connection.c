/* connection.c - see connection.h. */
#include "rendezvous/connection.h"

/* An address that answers "no" does so in a moment; one that does not answer takes the whole limit. */
static const int64_t refusal_ns = 1500 * NS_PER_MS;

static enum connection_state next_state(const struct connection *connection, enum connection_event event,
                                        struct instant now)
{
    enum connection_state state = connection->state;
    switch (event) {
    case CONNECTION_BEGINS: /* what was wrong stays said until something changes */
        return state == CONNECTION_NEW ? CONNECTION_TRYING : state;
    case CONNECTION_FAILS:
        if (state == CONNECTION_OPEN || state == CONNECTION_STRANGE)
            return CONNECTION_STRANGE;
        return instant_diff_ns(now, connection->begun) < refusal_ns ? CONNECTION_REFUSED : CONNECTION_SILENT;
    case CONNECTION_OPENS:
        return state == CONNECTION_STRANGE ? state : CONNECTION_OPEN;
    case CONNECTION_GREETS:
        return CONNECTION_GREETED;
    case CONNECTION_CONFUSES:
        return CONNECTION_STRANGE;
    default: /* CONNECTION_CLOSES */
        return state == CONNECTION_GREETED ? CONNECTION_BROKEN : CONNECTION_STRANGE;
    }
}

bool connection_step(struct connection *connection, enum connection_event event, struct instant now)
{
    enum connection_state before = connection->state;
    connection->state = next_state(connection, event, now);
    if (event == CONNECTION_BEGINS)
        connection->begun = now;
    return connection->state != before;
}

const char *connection_words(const struct connection *connection)
{
    static const char *const words[] = {
#define CONNECTION_WORDS(symbol, words) [symbol] = (words),
        CONNECTION_STATES(CONNECTION_WORDS)
#undef CONNECTION_WORDS
    };
    return words[connection->state];
}
