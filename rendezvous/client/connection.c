/* connection.c - see connection.h. */
#include "rendezvous/client/connection.h"

/* An address that refuses does so in a moment; an address that does not answer takes the whole limit. */
static const int64_t refusal_ns = 1500 * NS_PER_MS;

/* libzmq gives up a greeting after 2 s; a peer that closes does so sooner. */
static const int64_t mute_ns = 1800 * NS_PER_MS;
static const int64_t retry_ns = NS_PER_S, patience_ns = 5 * NS_PER_S;
static const int64_t brief_ns = NS_PER_S;

/* A server that is killed ends its connections before its port: a new one may come in between. */
enum { CUTS_LIMIT = 3 };

/* The known fault of the peer, which stays until it greets. */
static bool is_judged(enum connection_state state)
{
    return state >= CONNECTION_STRANGE && state <= CONNECTION_BROKEN_OFF;
}

static bool is_definite(enum connection_state state)
{
    return state >= CONNECTION_LACKS_SECRET && state <= CONNECTION_OTHER_JOB;
}

static bool is_mute(const struct connection *connection, struct instant now)
{
    return connection->opened.ns && instant_diff_ns(now, connection->opened) >= mute_ns;
}

static enum connection_state next_state(const struct connection *connection, enum connection_event event,
                                        struct instant now)
{
    enum connection_state state = connection->state;
    switch (event) {
    case CONNECTION_BEGINS: /* the fault stays until something changes */
        return state == CONNECTION_NEW ? CONNECTION_TRYING : state;
    case CONNECTION_FAILS:
        if (connection->ended.ns) /* not an attempt of its own: it only announces another one */
            return state;
        if (is_judged(state) && state != CONNECTION_MUTE)
            return state;
        if (state == CONNECTION_OPEN)
            return CONNECTION_STRANGE;
        return instant_diff_ns(now, connection->begun) < refusal_ns ? CONNECTION_REFUSED : CONNECTION_SILENT;
    case CONNECTION_OPENS:
        return is_judged(state) ? state : CONNECTION_OPEN;
    case CONNECTION_GREETS:
        return CONNECTION_GREETED;
    case CONNECTION_CONFUSES:
    case CONNECTION_BREAKS_OFF: /* also if the close came before the peer's greeting was read */
        if (is_definite(state))
            return state;
        if (is_mute(connection, now))
            return CONNECTION_MUTE;
        return event == CONNECTION_CONFUSES ? CONNECTION_STRANGE : CONNECTION_BROKEN_OFF;
    case CONNECTION_WANTS_SECRET:
        return CONNECTION_LACKS_SECRET;
    case CONNECTION_WANTS_NO_SECRET:
        return CONNECTION_HAS_SECRET;
    case CONNECTION_DENIES:
        return CONNECTION_OTHER_JOB;
    case CONNECTION_ENDS:
        return CONNECTION_CUT;
    default: /* CONNECTION_CLOSES */
        if (state == CONNECTION_GREETED)
            return CONNECTION_BROKEN;
        if (state == CONNECTION_CUT && connection->ended.ns)
            return state; /* the end of that connection */
        return is_judged(state) ? state : CONNECTION_STRANGE;
    }
}

bool connection_is_lost_by(const struct connection *connection, enum connection_event event)
{
    if (event == CONNECTION_CLOSES)
        return connection->state == CONNECTION_GREETED;
    return event == CONNECTION_FAILS && !connection->ended.ns && connection->state != CONNECTION_OPEN;
}

/* A connection that ends during the greeting tells of a peer's fault where it ends so again and again. */
static enum connection_event weigh(struct connection *connection, enum connection_event event,
                                   struct instant now)
{
    if (event == CONNECTION_GREETS || (event == CONNECTION_FAILS && !connection->ended.ns))
        connection->cuts = 0;
    if (event != CONNECTION_ENDS && event != CONNECTION_ENDS_SECRET)
        return event;
    if (!connection->cuts++)
        connection->cut_at = now;
    const bool often = connection->cuts >= CUTS_LIMIT &&
                       (!connection->met || instant_diff_ns(now, connection->cut_at) >= patience_ns);
    if (!often && !is_judged(connection->state) && !is_mute(connection, now))
        return CONNECTION_ENDS;
    return event == CONNECTION_ENDS ? CONNECTION_CONFUSES : CONNECTION_BREAKS_OFF;
}

bool connection_step(struct connection *connection, enum connection_event event, struct instant now)
{
    enum connection_state before = connection->state;
    event = weigh(connection, event, now);
    connection->state = next_state(connection, event, now);
    connection->met |= event == CONNECTION_GREETS;
    if (event == CONNECTION_BEGINS)
        connection->begun = now;
    if (event == CONNECTION_OPENS)
        connection->opened = now;
    connection->ended = event >= CONNECTION_CONFUSES ? now : (struct instant){0};
    if (event >= CONNECTION_CONFUSES)
        connection->brief = connection->opened.ns && instant_diff_ns(now, connection->opened) < brief_ns;
    /* libzmq's server closes as soon as it has read a greeting that it rejects, often before its own has
     * left: we then see a connection that ends, of a peer that gave the reason before. */
    if (event >= CONNECTION_CONFUSES && event <= CONNECTION_BREAKS_OFF && is_definite(connection->state))
        connection->mismatch_at = now;
    if (connection->state == before)
        return false;
    connection->since = now;
    return true;
}

bool connection_is_judged(const struct connection *connection)
{
    return is_judged(connection->state);
}

bool connection_is_mismatch(const struct connection *connection)
{
    return connection->state == CONNECTION_LACKS_SECRET || connection->state == CONNECTION_HAS_SECRET;
}

bool connection_is_hopeless(const struct connection *connection)
{
    return is_definite(connection->state) &&
           instant_diff_ns(connection->mismatch_at, connection->since) >= patience_ns;
}

struct instant connection_retry(const struct connection *connection)
{
    return connection->ended.ns ? instant_add(connection->ended, retry_ns) : INSTANT_NEVER;
}

void connection_retried(struct connection *connection)
{
    connection->ended = (struct instant){0};
}

int connection_longest_interval_ms(int nodes)
{
    enum { SHORTEST = 250, LONGEST = 5000, A_NODE = 4 };
    return nodes >= LONGEST / A_NODE ? LONGEST : nodes > SHORTEST / A_NODE ? nodes * A_NODE : SHORTEST;
}

int64_t connection_first_delay_ns(int nodes, uint64_t random)
{
    enum { AT_ONCE = 500, A_NODE_US = 100 };
    return nodes <= AT_ONCE ? 0 : (int64_t)(random % ((uint64_t)nodes * A_NODE_US)) * NS_PER_US;
}

int connection_limit_ms(int nodes)
{
    enum { SHORTEST = 3000, A_NODE = 3 };
    return nodes > SHORTEST / A_NODE ? nodes * A_NODE : SHORTEST;
}

int connection_first_interval_ms(const struct connection *connection)
{
    enum { QUICK = 10, SLOW = 100 }; /* most agents of a job connect a moment before the first listens */
    return connection->brief ? SLOW : QUICK;
}

/* An agreed connection keeps the pace that it began with until it ends. */
bool connection_changes_pace(const struct connection *connection, int first_interval_ms)
{
    return connection_first_interval_ms(connection) != first_interval_ms && !connection->ended.ns &&
           connection->state != CONNECTION_GREETED;
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
