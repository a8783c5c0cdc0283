/* tcpstore_budget.c - one budget for the memory of all clients of a TCPStore: the one that holds most loses
 * it. See tcpstore.h.
 */
#include "proto/base/error.h"
#include "rendezvous/tcpstore/tcpstore_internal.h"

size_t tcpstore_budget(size_t workers)
{
    const size_t most = (TCPSTORE_BUDGET_LIMIT - TCPSTORE_BUDGET) / TCPSTORE_BUDGET_EACH;
    return TCPSTORE_BUDGET + (workers < most ? workers : most) * TCPSTORE_BUDGET_EACH;
}

size_t tcpstore_held(const struct tcpstore *t)
{
    return t->buffered + store_stats(t->store).bytes;
}

uint64_t tcpstore_crowded_out(const struct tcpstore *t)
{
    return t->crowded_out;
}

void tcpstore_connection_count(struct tcpstore_connection *c)
{
    const size_t now =
        c->input.capacity + c->output.capacity + c->parser.capacity * sizeof(struct tcpstore_span);
    c->engine->buffered += now - c->counted; /* wraps to the right sum */
    c->counted = now;
}

static size_t held_by(const struct tcpstore_connection *c)
{
    return c->counted + store_owner_bytes(c->account);
}

static struct tcpstore_connection *largest_of(const struct tcpstore *t)
{
    struct tcpstore_connection *largest = NULL;
    for (struct tcpstore_connection *c = t->connections; c; c = c->next)
        if (c->state != TCPSTORE_STATE_BROKEN && (!largest || held_by(c) > held_by(largest)))
            largest = c;
    return largest;
}

static int crowded_error(const struct tcpstore_connection *c, size_t more, struct muster_error *err)
{
    const struct tcpstore *t = c->engine;
    return error_set(
        err, MUSTER_E_LIMIT,
        "it needs %zu bytes more than its %zu, the most of all clients, which hold %zu of at most %zu "
        "bytes together (muster run --store-memory)",
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
    buffer_free(&c->output);
    c->output_sent = 0;
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
        struct tcpstore_connection *largest = largest_of(t);
        struct store_owner *left = store_largest_left(t->store);
        const size_t own = held_by(c) + more;
        size_t most = largest ? held_by(largest) : 0;
        if (own >= most || !largest) {
            largest = c;
            most = own;
        }
        t->crowded_out++;
        if (left && store_owner_bytes(left) > most) {
            store_forfeit(t->store, left);
        } else if (largest == c) {
            c->forfeits = true;
            return crowded_error(c, more, err);
        } else {
            crowd_out(largest);
        }
    }
    return 0;
}
