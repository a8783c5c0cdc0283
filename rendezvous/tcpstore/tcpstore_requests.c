/* tcpstore_requests.c - see tcpstore_internal.h: carries out one request of a connection on the store and
 * encodes its reply. */
#include <endian.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_internal.h"

/* A scratch list longer than this is freed after the request that needed it. */
enum { STRINGS_KEPT = 4096 };

/* --- replies --- */

static void reply_bytes(struct tcpstore_connection *c, const void *data, size_t length)
{
    tcpstore_output_copy(&c->output, data, length); /* tcpstore_request_serve looks whether it failed */
}

/* before: bytes that waited without the reply. */
static void reply_done(struct tcpstore_connection *c, size_t before)
{
    if (c->output.waiting == before)
        return;
    tcpstore_connection_count(c);
    tcpstore_connection_touch(c);
}

static void reply_u8(struct tcpstore_connection *c, uint8_t value)
{
    reply_bytes(c, &value, sizeof value);
}

static void reply_u32(struct tcpstore_connection *c, uint32_t value)
{
    value = htole32(value);
    reply_bytes(c, &value, sizeof value);
}

static void reply_i64(struct tcpstore_connection *c, int64_t value)
{
    uint64_t wire = htole64((uint64_t)value);
    reply_bytes(c, &wire, sizeof wire);
}

static void reply_vector(struct tcpstore_connection *c, struct store_bytes bytes)
{
    reply_i64(c, (int64_t)bytes.length);
    reply_bytes(c, bytes.data, bytes.length);
}

/* A value of the store, without a copy if it is large. */
static void reply_value(struct tcpstore_connection *c, struct store_bytes value)
{
    reply_i64(c, (int64_t)value.length);
    tcpstore_output_share(&c->output, c->engine->store, c->account, value);
}

static void reply_answer(struct tcpstore_connection *c, const struct store_answer *answer)
{
    switch ((enum tcpstore_query)c->parser.query) {
    case TCPSTORE_VALIDATE:
    case TCPSTORE_SET:
    case TCPSTORE_APPEND:
    case TCPSTORE_MULTI_SET:
    case TCPSTORE_QUEUE_PUSH:
        break;
    case TCPSTORE_COMPARE_SET: /* its answer may be the request's */
        reply_vector(c, answer->value);
        break;
    case TCPSTORE_GET:
        reply_value(c, answer->value);
        break;
    case TCPSTORE_ADD:
    case TCPSTORE_GETNUMKEYS:
    case TCPSTORE_DELETE_KEY:
    case TCPSTORE_QUEUE_LEN:
        reply_i64(c, answer->number);
        break;
    case TCPSTORE_CHECK:
        reply_u8(c, answer->found ? TCPSTORE_READY : TCPSTORE_NOT_READY);
        break;
    case TCPSTORE_WAIT:
    case TCPSTORE_BARRIER:
        if (answer->parked)
            c->state = TCPSTORE_STATE_PARKED;
        else
            reply_u8(c, TCPSTORE_STOP_WAITING);
        break;
    case TCPSTORE_LIST_KEYS:
        reply_i64(c, (int64_t)answer->count);
        for (size_t i = 0; i < answer->count; i++)
            reply_vector(c, answer->list[i]);
        break;
    case TCPSTORE_MULTI_GET:
        for (size_t i = 0; i < answer->count; i++)
            reply_value(c, answer->list[i]);
        break;
    case TCPSTORE_CANCEL_WAIT:
        reply_u8(c, TCPSTORE_WAIT_CANCELED);
        break;
    case TCPSTORE_PING:
        reply_u32(c, (uint32_t)c->parser.number);
        break;
    case TCPSTORE_QUEUE_POP:
        reply_i64(c, answer->number);
        if (answer->number > 0)
            reply_value(c, answer->value);
        break;
    case TCPSTORE_QUERY_COUNT:
        break;
    }
}

/* --- requests --- */

/* Collects the request's strings in the order of the store's interface: a MULTI_SET's keys before its values.
 */
static int gather_strings(struct tcpstore_connection *c, const char *data, struct muster_error *err)
{
    struct tcpstore *t = c->engine;
    const struct tcpstore_parser *p = &c->parser;
    if (p->count > t->strings_capacity) {
        struct store_bytes *strings = mem_realloc(t->strings, p->count, sizeof *strings);
        if (strings)
            t->strings = strings;
        struct store_block **blocks = mem_realloc(t->blocks, p->count, sizeof(struct store_block *));
        if (blocks)
            t->blocks = blocks;
        if (!strings || !blocks)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a request of %zu strings", p->count);
        t->strings_capacity = p->count;
    }
    bool pairs = p->query == TCPSTORE_MULTI_SET;
    for (size_t i = 0; i < p->count; i++) {
        size_t to = pairs ? i / 2 + (i % 2 ? p->count / 2 : 0) : i;
        t->strings[to] = tcpstore_parser_string(p, data, i);
        t->blocks[to] = p->spans[i].block;
    }
    return 0;
}

/* The store's operation for a query; -1 for queries that do not use the store. */
static int operation_of(enum tcpstore_query query)
{
    static const signed char operations[] = {
        [TCPSTORE_VALIDATE] = -1,
        [TCPSTORE_SET] = STORE_SET,
        [TCPSTORE_COMPARE_SET] = STORE_COMPARE_SET,
        [TCPSTORE_GET] = STORE_GET,
        [TCPSTORE_ADD] = STORE_ADD,
        [TCPSTORE_CHECK] = STORE_CHECK,
        [TCPSTORE_WAIT] = STORE_WAIT,
        [TCPSTORE_GETNUMKEYS] = STORE_NUM_KEYS,
        [TCPSTORE_DELETE_KEY] = STORE_DELETE,
        [TCPSTORE_APPEND] = STORE_APPEND,
        [TCPSTORE_MULTI_GET] = STORE_MULTI_GET,
        [TCPSTORE_MULTI_SET] = STORE_MULTI_SET,
        [TCPSTORE_CANCEL_WAIT] = STORE_CANCEL,
        [TCPSTORE_PING] = -1,
        [TCPSTORE_QUEUE_PUSH] = STORE_QUEUE_PUSH,
        [TCPSTORE_QUEUE_POP] = STORE_QUEUE_POP,
        [TCPSTORE_QUEUE_LEN] = STORE_QUEUE_LEN,
        [TCPSTORE_LIST_KEYS] = STORE_LIST_KEYS,
        [TCPSTORE_BARRIER] = STORE_BARRIER,
    };
    _Static_assert(sizeof operations == TCPSTORE_QUERY_COUNT, "every query has an operation");
    return operations[query];
}

static int step_store(struct tcpstore_connection *c, int operation, struct store_answer *answer,
                      struct muster_error *err)
{
    const struct tcpstore_parser *p = &c->parser;
    const struct store_bytes *s = c->engine->strings;
    struct store_block **blocks = c->engine->blocks;
    struct store_request request = {.operation = (enum store_operation)operation,
                                    .owner = c->account,
                                    .client = tcpstore_connection_client(c),
                                    .number = p->number,
                                    .reusable = c->muster_client};
    switch (operation) {
    case STORE_CHECK:
    case STORE_WAIT:
    case STORE_MULTI_GET:
        request.keys = s;
        request.count = p->count;
        break;
    case STORE_MULTI_SET:
        request.keys = s;
        request.count = p->count / 2;
        request.values = s ? s + request.count : NULL;
        request.blocks = blocks ? blocks + request.count : NULL;
        break;
    default:
        if (p->count > 0)
            request.key = s[0];
        if (p->count > 1)
            request.value = s[p->count - 1], request.blocks = blocks + p->count - 1;
        if (p->count > 2)
            request.expected = s[1];
        break;
    }
    return store_step(c->engine->store, &request, answer, err);
}

/* The bytes that the request may add to the store, roughly: each string has its own memory, and a name some
 * more. */
static size_t need_of(const struct tcpstore_connection *c)
{
    enum { EACH = 256 };
    size_t bytes = EACH;
    for (size_t i = 0; i < c->parser.count; i++)
        bytes += EACH + c->parser.spans[i].length;
    return bytes;
}

static size_t reply_bytes_of(const struct store_answer *answer)
{
    size_t bytes = tcpstore_output_cost(answer->value.length);
    for (size_t i = 0; i < answer->count; i++)
        bytes += tcpstore_output_cost(answer->list[i].length);
    return bytes;
}

/* Where the store has no room others may have to make some, and the step is tried again: the first one
 * changed nothing. */
static int step_with_room(struct tcpstore_connection *c, int operation, struct store_answer *answer,
                          struct muster_error *err)
{
    struct tcpstore *t = c->engine;
    if (c->parser.in_blocks) { /* they count as the store's from here on */
        c->handing_over = true;
        tcpstore_connection_count(c);
    }
    for (;;) {
        const uint64_t before = t->crowded_out;
        store_set_total(t->store, t->buffered < t->budget ? t->budget - t->buffered : 0);
        if (step_store(c, operation, answer, err)) {
            if (err->code != MUSTER_E_LIMIT)
                return -1;
            struct muster_error crowded = {0};
            if (tcpstore_make_room(c, need_of(c), &crowded)) {
                *err = crowded;
                return -1;
            }
            if (t->crowded_out == before)
                return -1; /* another limit */
            continue;
        }
        /* The answer's bytes are the store's: where any of them go, it is asked again. */
        if (operation != STORE_GET && operation != STORE_MULTI_GET && operation != STORE_LIST_KEYS)
            return 0;
        if (tcpstore_make_room(c, reply_bytes_of(answer), err))
            return -1;
        if (t->crowded_out == before)
            return 0;
    }
}

void tcpstore_request_wakes(struct tcpstore *t)
{
    struct store_wake wake;
    while (store_next_wake(t->store, &wake)) {
        struct tcpstore_connection *c = (struct tcpstore_connection *)(uintptr_t)wake.client;
        if (c->state != TCPSTORE_STATE_PARKED || wake.reason != STORE_WAKE_READY)
            continue; /* tcpstore_wipe breaks the connections itself */
        c->state = TCPSTORE_STATE_OPEN;
        const size_t before = c->output.waiting;
        reply_u8(c, TCPSTORE_STOP_WAITING);
        reply_done(c, before);
        tcpstore_connection_make_runnable(c);
    }
}

/* A CHECK of the single key TCPSTORE_MUSTER_KEY. */
static bool is_server_probe(const struct tcpstore_connection *c)
{
    static const char probe[] = TCPSTORE_MUSTER_KEY;
    const struct tcpstore_parser *p = &c->parser;
    return p->query == TCPSTORE_CHECK && p->count == 1 && p->spans[0].length == sizeof probe - 1 &&
           !memcmp(c->engine->strings[0].data, probe, sizeof probe - 1);
}

int tcpstore_request_serve(struct tcpstore_connection *c, const char *data, struct muster_error *err)
{
    const struct tcpstore_parser *p = &c->parser;
    if (p->query == TCPSTORE_VALIDATE && p->number != TCPSTORE_MAGIC)
        return error_set(err, MUSTER_E_PROTOCOL, "VALIDATE carries 0x%08X, not 0x%08X", (unsigned)p->number,
                         TCPSTORE_MAGIC);
    struct store_answer answer = {0};
    int operation = operation_of((enum tcpstore_query)p->query);
    if (gather_strings(c, data, err))
        return -1;
    unsigned char challenge[MAC_SIZE];
    const int proof = tcpstore_proof_serve(c, &answer, challenge, err);
    if (proof < 0)
        return -1;
    if (is_server_probe(c))
        answer.found = c->muster_client = true;
    else if (!proof && tcpstore_proof_check(c, err))
        return -1;
    else if (!proof && operation >= 0 && step_with_room(c, operation, &answer, err))
        return -1;
    c->engine->served++;
    c->state = TCPSTORE_STATE_OPEN;
    const size_t before = c->output.waiting;
    reply_answer(c, &answer);
    reply_done(c, before);
    if (c->output.failed)
        return error_set(err, MUSTER_E_LIMIT,
                         "the reply to %s exceeds the limit of %zu bytes of unsent replies",
                         tcpstore_query_name(p->query), TCPSTORE_MESSAGE_LIMIT);
    tcpstore_request_wakes(c->engine);
    if (c->engine->strings_capacity > STRINGS_KEPT) {
        mem_free(take_pointer(&c->engine->strings));
        mem_free(take_pointer(&c->engine->blocks));
        c->engine->strings_capacity = 0;
    }
    return 0;
}
