/* tcpstore_budget.c - one budget for the memory of all clients of a TCPStore: the largest client loses all
 * that it holds. See tcpstore.h. */
#include "proto/base/error.h"
#include "rendezvous/tcpstore/tcpstore_internal.h"

/* A fourth of the budget for unfinished requests and unread replies: beyond it they go first. */
enum { BUFFERS_SHARE = 4 };

size_t tcpstore_budget(size_t workers)
{
    const size_t most = (TCPSTORE_BUDGET_LIMIT - TCPSTORE_BUDGET) / TCPSTORE_BUDGET_EACH;
    return TCPSTORE_BUDGET + (workers < most ? workers : most) * TCPSTORE_BUDGET_EACH;
}

size_t tcpstore_held(const struct tcpstore *t)
{
    return t->buffered + store_stats(t->store).bytes;
}

size_t tcpstore_bound(const struct tcpstore *t)
{
    return t->budget;
}

uint64_t tcpstore_crowded_out(const struct tcpstore *t)
{
    return t->crowded_out;
}

void tcpstore_connection_count(struct tcpstore_connection *c)
{
    const size_t now = c->input.capacity + tcpstore_output_memory(&c->output) +
                       tcpstore_parser_memory(&c->parser, !c->handing_over);
    c->engine->buffered += now - c->counted; /* wraps to the right sum */
    c->counted = now;
}

static size_t held_by(const struct tcpstore_connection *c)
{
    return c->counted + store_owner_bytes(c->account);
}

/* What counts against the connection while the budget is exceeded. A value may be needed by other clients, an
 * unfinished request and an unread reply are not: while these take much, they alone count. A peer that has
 * proven the job's key fills no store on purpose. */
static size_t weight_of(const struct tcpstore_connection *c, size_t more, bool values)
{
    enum { PROVEN = 16 };
    const size_t bytes = c->counted + more + (values ? store_owner_bytes(c->account) : 0);
    return bytes / (c->proven ? PROVEN : 1);
}

static struct tcpstore_connection *heaviest_of(const struct tcpstore *t, bool values)
{
    struct tcpstore_connection *heaviest = NULL;
    for (struct tcpstore_connection *c = t->connections; c; c = c->next)
        if (c->state != TCPSTORE_STATE_BROKEN &&
            (!heaviest || weight_of(c, 0, values) > weight_of(heaviest, 0, values)))
            heaviest = c;
    return heaviest;
}

static int crowded_error(const struct tcpstore_connection *c, size_t more, struct muster_error *err)
{
    const struct tcpstore *t = c->engine;
    return error_set(
        err, MUSTER_E_LIMIT,
        "it needs %zu bytes more than its %zu and holds most of all clients, which hold %zu of at "
        "most %zu bytes together (muster run --store-memory)",
        more, held_by(c), tcpstore_held(t), t->budget);
}

void tcpstore_connection_empty(struct tcpstore_connection *c)
{
    struct store *store = c->engine->store;
    struct store_request leave = {.operation = STORE_LEAVE, .client = tcpstore_connection_client(c)};
    struct store_answer answer;
    (void)store_step(store, &leave, &answer, NULL); /* cannot fail */
    store_forfeit(store, c->account);
    tcpstore_parser_free(&c->parser);
    buffer_free(&c->input);
    tcpstore_output_free(&c->output, store);
    c->forfeits = false;
    tcpstore_connection_count(c);
}

/* Not the connection whose request is served: its buffers are in use. */
static void crowd_out(struct tcpstore_connection *c)
{
    struct muster_error err = {0};
    (void)crowded_error(c, 0, &err);
    tcpstore_connection_break(c, &err);
    tcpstore_connection_empty(c);
}

int tcpstore_make_room(struct tcpstore_connection *c, size_t more, struct muster_error *err)
{
    struct tcpstore *t = c->engine;
    tcpstore_connection_count(c);
    while (tcpstore_held(t) + more > t->budget) {
        const bool values = t->buffered + more <= t->budget / BUFFERS_SHARE;
        struct tcpstore_connection *heaviest = heaviest_of(t, values);
        struct store_owner *left = values ? store_largest_left(t->store) : NULL;
        const size_t own = weight_of(c, more, values);
        size_t most = heaviest ? weight_of(heaviest, 0, values) : 0;
        if (own >= most || !heaviest) {
            heaviest = c;
            most = own;
        }
        t->crowded_out++;
        if (left && store_owner_bytes(left) > most) {
            store_forfeit(t->store, left);
        } else if (heaviest == c) {
            c->forfeits = true;
            return crowded_error(c, more, err);
        } else {
            crowd_out(heaviest);
        }
    }
    return 0;
}
