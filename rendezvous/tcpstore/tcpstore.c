/* tcpstore.c - see tcpstore.h: the engine, its connections, and the order in which their requests are served.
 * tcpstore_parser.c parses requests, tcpstore_requests.c carries them out. */
#include "rendezvous/tcpstore/tcpstore.h"

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_greeting.h"
#include "rendezvous/tcpstore/tcpstore_internal.h"

/* An idle connection frees an input larger than this: thousands of workers are connected and idle. */
enum { BUFFER_KEPT = 4096 };

static struct muster_error reason_without_memory = {MUSTER_E_NOMEM, "out of memory"};

const char *tcpstore_state_name(int state)
{
    static const char *const names[] = {
#define TCPSTORE_STATE_NAME(symbol, name) [symbol] = name,
        TCPSTORE_STATES(TCPSTORE_STATE_NAME)
#undef TCPSTORE_STATE_NAME
    };
    return state >= 0 && (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

/* --- the engine and its connections --- */

struct tcpstore *tcpstore_create(const struct store_limits *limits, struct muster_error *err)
{
    struct tcpstore *t = mem_calloc(1, sizeof *t);
    if (!t) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a TCPStore");
        return NULL;
    }
    struct store_limits bound = limits ? *limits : (struct store_limits){0};
    t->budget = bound.total_bytes = bound.total_bytes ? bound.total_bytes : TCPSTORE_BUDGET;
    t->store = store_create(&bound, err);
    if (!t->store) {
        mem_free(t);
        return NULL;
    }
    t->limits = store_limits_of(t->store);
    return t;
}

void tcpstore_destroy(struct tcpstore *t)
{
    if (!t)
        return;
    while (t->connections)
        tcpstore_close(t->connections);
    store_destroy(t->store);
    mem_free(t->strings);
    mem_free(t->blocks);
    mem_free(t);
}

struct tcpstore_connection *tcpstore_open(struct tcpstore *t, void *owner, struct muster_error *err)
{
    struct tcpstore_connection *c = mem_calloc(1, sizeof *c);
    if (!c) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a connection of the TCPStore");
        return NULL;
    }
    c->account = store_owner_create(t->store, err);
    if (!c->account) {
        mem_free(c);
        return NULL;
    }
    c->engine = t;
    c->number = ++t->opened;
    c->owner = owner;
    c->state = TCPSTORE_STATE_GREETING;
    c->next = t->connections;
    if (c->next)
        c->next->previous = c;
    t->connections = c;
    return c;
}

void tcpstore_connection_touch(struct tcpstore_connection *c)
{
    struct tcpstore_queue *queue = &c->engine->touched;
    if (c->touched)
        return;
    c->touched = true;
    c->next_touched = NULL;
    *(queue->first ? &queue->last->next_touched : &queue->first) = c;
    queue->last = c;
}

void tcpstore_connection_make_runnable(struct tcpstore_connection *c)
{
    struct tcpstore_queue *queue = &c->engine->runnable;
    if (c->runnable)
        return;
    c->runnable = true;
    c->next_runnable = NULL;
    *(queue->first ? &queue->last->next_runnable : &queue->first) = c;
    queue->last = c;
}

struct tcpstore_connection *tcpstore_next_touched(struct tcpstore *t)
{
    struct tcpstore_connection *c = t->touched.first;
    if (!c)
        return NULL;
    t->touched.first = c->next_touched;
    c->touched = false;
    return c;
}

/* For a connection that is about to be freed. */
static void leave_touched(struct tcpstore_connection *c)
{
    struct tcpstore_queue *queue = &c->engine->touched;
    struct tcpstore_connection *before = NULL;
    if (!c->touched)
        return;
    for (struct tcpstore_connection *at = queue->first; at != c; at = at->next_touched)
        before = at;
    *(before ? &before->next_touched : &queue->first) = c->next_touched;
    if (queue->last == c)
        queue->last = before;
}

void tcpstore_close(struct tcpstore_connection *c)
{
    if (!c)
        return;
    /* The runnable queue is empty between calls into this file, and no call closes a connection. */
    struct store_request leave = {.operation = STORE_LEAVE, .client = tcpstore_connection_client(c)};
    struct store_answer answer;
    (void)store_step(c->engine->store, &leave, &answer, NULL); /* cannot fail */
    leave_touched(c);
    *(c->previous ? &c->previous->next : &c->engine->connections) = c->next;
    if (c->next)
        c->next->previous = c->previous;
    tcpstore_parser_free(&c->parser);
    buffer_free(&c->input);
    tcpstore_output_free(&c->output, c->engine->store);
    tcpstore_connection_count(c);
    store_owner_leave(c->engine->store, c->account);
    if (c->reason != &reason_without_memory)
        mem_free(c->reason);
    mem_free(c);
}

void *tcpstore_owner(const struct tcpstore_connection *c)
{
    return c->owner;
}

enum tcpstore_state tcpstore_state(const struct tcpstore_connection *c)
{
    return c->state;
}

const struct muster_error *tcpstore_broken_reason(const struct tcpstore_connection *c)
{
    return c->reason;
}

void tcpstore_connection_break(struct tcpstore_connection *c, const struct muster_error *reason)
{
    if (c->state == TCPSTORE_STATE_BROKEN)
        return;
    c->state = TCPSTORE_STATE_BROKEN;
    c->reason = mem_calloc(1, sizeof *c->reason);
    if (c->reason)
        *c->reason = *reason;
    else
        c->reason = &reason_without_memory;
    tcpstore_connection_touch(c);
}

/* Determines the peer's protocol version; 0 also while more bytes are needed for that. */
static int check_greeting(struct tcpstore_connection *c, const char *data, size_t length,
                          struct muster_error *err)
{
    if (c->parser.dialect != TCPSTORE_DIALECT_UNKNOWN)
        return 0;
    return tcpstore_greeting(data, length, &c->engine->limits, &c->parser.dialect, err);
}

/* Without a magic number, only the first key distinguishes a client from other bytes that parse as a request.
 */
static int check_first_key(const struct tcpstore_connection *c, const char *data, struct muster_error *err)
{
    const struct tcpstore_parser *p = &c->parser;
    if (c->state != TCPSTORE_STATE_GREETING || p->dialect != TCPSTORE_DIALECT_2_1 || !p->count)
        return 0;
    struct store_bytes key = tcpstore_parser_string(p, data, 0);
    if (tcpstore_greeting_key(key))
        return 0;
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "its first request is %s of a key that no client of PyTorch writes: not a TCPStore client",
        tcpstore_query_name(p->query));
}

static bool is_cancel(const struct tcpstore_connection *c, char query)
{
    return query == TCPSTORE_CANCEL_WAIT - (c->parser.dialect == TCPSTORE_DIALECT_2_1);
}

/* After a parked wait: 1 if the bytes are a GET or MULTI_GET and the CANCEL_WAIT that cancels it. The GET
 * then counts as served: connection_step continues with the CANCEL_WAIT. */
static int cancel_queued_get(struct tcpstore_connection *c, const char *data, size_t length)
{
    struct tcpstore_parser behind = {.dialect = c->parser.dialect};
    bool found = false;
    if (c->muster_client && is_cancel(c, data[length - 1]) &&
        (data[0] == TCPSTORE_GET || data[0] == TCPSTORE_MULTI_GET))
        found = tcpstore_parse(&behind, data, length, &c->engine->limits, NULL) == TCPSTORE_PARSE_DONE &&
                behind.cursor == length - 1;
    if (found)
        c->parser.cursor = behind.cursor;
    tcpstore_parser_free(&behind);
    return found;
}

/* Serves the request at data if it is complete and may be served now. 1: served; 0: not now; -1: broken. */
static int connection_step(struct tcpstore_connection *c, const char *data, size_t length,
                           struct muster_error *err)
{
    if (!length || c->output.waiting > TCPSTORE_OUTPUT_HIGH)
        return 0;
    /* Requests after a parked wait are held until it ends, unless they cancel it. */
    if (c->state == TCPSTORE_STATE_PARKED && !is_cancel(c, data[0]))
        return cancel_queued_get(c, data, length);
    if (check_greeting(c, data, length, err))
        return -1;
    if (c->parser.dialect == TCPSTORE_DIALECT_UNKNOWN)
        return 0;
    enum tcpstore_parsed parsed = tcpstore_parse(&c->parser, data, length, &c->engine->limits, err);
    if (parsed == TCPSTORE_PARSE_MORE)
        return 0;
    if (parsed == TCPSTORE_PARSE_BROKEN || check_first_key(c, data, err) ||
        tcpstore_request_serve(c, data, err))
        return -1;
    return 1;
}

/* Serves the complete requests at data that can be served; returns how many bytes they have. */
static size_t connection_consume(struct tcpstore_connection *c, const char *data, size_t length)
{
    struct muster_error err = {0};
    size_t used = 0;
    int step = 0;
    while (c->state != TCPSTORE_STATE_BROKEN &&
           (step = connection_step(c, data + used, length - used, &err)) > 0) {
        used += c->parser.cursor;
        tcpstore_parser_reset(&c->parser);
        c->handing_over = false;
    }
    c->handing_over = false;
    if (step < 0)
        tcpstore_connection_break(c, &err);
    return used;
}

/* After requests of the connection were served, or bytes of them kept. */
static void connection_settle(struct tcpstore_connection *c)
{
    struct muster_error err = {0};
    if (c->state != TCPSTORE_STATE_BROKEN && tcpstore_make_room(c, 0, &err))
        tcpstore_connection_break(c, &err);
    if (c->forfeits)
        tcpstore_connection_empty(c);
    tcpstore_connection_count(c);
}

/* Moves the large strings of an incomplete request out of the input. */
static void connection_keep(struct tcpstore_connection *c)
{
    struct muster_error err = {0};
    if (c->state != TCPSTORE_STATE_BROKEN && c->parser.started &&
        tcpstore_parser_keep(&c->parser, &c->input, &err))
        tcpstore_connection_break(c, &err);
}

static void connection_run(struct tcpstore_connection *c)
{
    if (c->input.length > 0) {
        buffer_consume(&c->input, connection_consume(c, c->input.data, c->input.length));
        connection_keep(c);
    }
    if (!c->input.length && c->input.capacity > BUFFER_KEPT)
        buffer_free(&c->input);
    connection_settle(c);
}

static void run_all(struct tcpstore *t)
{
    for (struct tcpstore_connection *c; (c = t->runnable.first);) {
        t->runnable.first = c->next_runnable;
        c->runnable = false;
        connection_run(c);
    }
}

/* By how much it may grow for so many bytes more: half as much again (buffer.h). */
static size_t growth_of(const struct buffer *b, size_t more)
{
    return b->length + more < b->capacity ? 0 : (b->length + more) / 2 + more;
}

/* Into the block that is being filled; returns how many bytes it has taken. */
static size_t connection_fill(struct tcpstore_connection *c, const char *data, size_t length)
{
    struct muster_error err = {0};
    size_t grows;
    const size_t takes = tcpstore_parser_takes(&c->parser, length, &grows);
    if (tcpstore_make_room(c, grows, &err) || tcpstore_parser_fill(&c->parser, data, length, &err))
        tcpstore_connection_break(c, &err);
    return takes;
}

void tcpstore_feed(struct tcpstore_connection *c, const void *data, size_t length)
{
    /* The usual case: no input is queued, and whole requests are served without a copy. */
    struct muster_error err = {0};
    bool queued = c->input.length > 0;
    size_t used = c->parser.filling && c->state != TCPSTORE_STATE_BROKEN ? connection_fill(c, data, length)
                  : queued                                               ? 0
                           : connection_consume(c, data, length);
    if (used < length && c->state != TCPSTORE_STATE_BROKEN) {
        if (tcpstore_make_room(c, growth_of(&c->input, length - used), &err))
            tcpstore_connection_break(c, &err);
        else if (buffer_append(&c->input, (const char *)data + used, length - used))
            tcpstore_connection_break(c, &reason_without_memory);
        else if (!queued)
            connection_keep(c);
    }
    if (queued && c->state != TCPSTORE_STATE_BROKEN)
        tcpstore_connection_make_runnable(c);
    connection_settle(c);
    run_all(c->engine);
}

struct store_bytes tcpstore_output(const struct tcpstore_connection *c)
{
    struct iovec part = {0};
    (void)tcpstore_output_parts(&c->output, &part, 1);
    return (struct store_bytes){part.iov_base, part.iov_len};
}

size_t tcpstore_output_runs(const struct tcpstore_connection *c, struct iovec *runs, size_t most)
{
    return tcpstore_output_parts(&c->output, runs, most);
}

void tcpstore_sent(struct tcpstore_connection *c, size_t length)
{
    tcpstore_output_sent(&c->output, c->engine->store, length);
    tcpstore_connection_count(c);
    if (c->state != TCPSTORE_STATE_BROKEN && c->input.length > 0) {
        tcpstore_connection_make_runnable(c);
        run_all(c->engine);
    }
}

bool tcpstore_wants_input(const struct tcpstore_connection *c)
{
    if (c->state == TCPSTORE_STATE_BROKEN)
        return false;
    bool held_back = c->state == TCPSTORE_STATE_PARKED || c->output.waiting > TCPSTORE_OUTPUT_HIGH;
    return !held_back || c->input.length < TCPSTORE_INPUT_HIGH;
}

bool tcpstore_fills_value(const struct tcpstore_connection *c)
{
    return c->state != TCPSTORE_STATE_BROKEN && c->parser.filling;
}

void tcpstore_wipe(struct tcpstore *t)
{
    struct muster_error over = {0};
    error_set(&over, MUSTER_E_CANCELLED, "the round is over");
    for (struct tcpstore_connection *c = t->connections; c; c = c->next)
        tcpstore_connection_break(c, &over);
    store_wipe(t->store);
    tcpstore_request_wakes(t);
}

struct store_stats tcpstore_stats(const struct tcpstore *t)
{
    return store_stats(t->store);
}

uint64_t tcpstore_served(const struct tcpstore *t)
{
    return t->served;
}
