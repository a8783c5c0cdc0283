/* tcpstore_parser.c - see tcpstore_parser.h. The table TCPSTORE_QUERIES has the bodies. */
#include "rendezvous/tcpstore/tcpstore_parser.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_output.h"

/* A list of spans longer than this is freed after the request that needed it. */
enum { SPANS_KEPT = 64 };

const char *tcpstore_query_name(int query)
{
    static const char *const names[] = {
#define TCPSTORE_QUERY_NAME(symbol, name, body) [symbol] = name,
        TCPSTORE_QUERIES(TCPSTORE_QUERY_NAME)
#undef TCPSTORE_QUERY_NAME
    };
    return query >= 0 && query < TCPSTORE_QUERY_COUNT ? names[query] : "unknown";
}
/* The memory that a string takes which has only announced itself; it grows as its bytes arrive. */
enum { BLOCK_START = 64 << 10 };

static const char *query_body(int query)
{
    static const char *const bodies[] = {
#define TCPSTORE_QUERY_BODY(symbol, name, body) [symbol] = body,
        TCPSTORE_QUERIES(TCPSTORE_QUERY_BODY)
#undef TCPSTORE_QUERY_BODY
    };
    return bodies[query];
}

static bool take_u32(struct tcpstore_parser *p, const char *data, size_t length, uint32_t *out)
{
    if (length - p->cursor < sizeof *out)
        return false;
    memcpy(out, data + p->cursor, sizeof *out);
    *out = le32toh(*out);
    p->cursor += sizeof *out;
    return true;
}

static bool take_u64(struct tcpstore_parser *p, const char *data, size_t length, uint64_t *out)
{
    if (length - p->cursor < sizeof *out)
        return false;
    memcpy(out, data + p->cursor, sizeof *out);
    *out = le64toh(*out);
    p->cursor += sizeof *out;
    return true;
}

static inline int add_span(struct tcpstore_parser *p, size_t length, struct store_block *block,
                           struct muster_error *err)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 4;
        struct tcpstore_span *spans = mem_realloc(p->spans, capacity, sizeof *spans);
        if (!spans)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a request of %zu strings", capacity);
        p->spans = spans;
        p->capacity = capacity;
    }
    p->spans[p->count++] = (struct tcpstore_span){.offset = p->cursor, .length = length, .block = block};
    p->cursor += block ? 0 : length;
    return 0;
}

static enum tcpstore_parsed reject_string(const struct tcpstore_parser *p, bool is_key, uint64_t bytes,
                                          size_t limit, struct muster_error *err)
{
    const char *name = tcpstore_query_name(p->query), *what = is_key ? "key" : "value";
    if (bytes > limit)
        return error_set(err, MUSTER_E_LIMIT, "%s with a %s of %" PRIu64 " bytes: at most %zu are allowed",
                         name, what, bytes, limit);
    return error_set(err, MUSTER_E_LIMIT, "%s exceeds %zu bytes, the limit of one request", name,
                     TCPSTORE_MESSAGE_LIMIT);
}

static enum tcpstore_parsed take_string(struct tcpstore_parser *p, const char *data, size_t length,
                                        bool is_key, const struct store_limits *limits,
                                        struct muster_error *err)
{
    size_t start = p->cursor, limit = is_key ? limits->key_bytes : limits->value_bytes;
    uint64_t bytes = 0;
    if (p->filling) {
        if (p->filled < p->wanted)
            return TCPSTORE_PARSE_MORE;
        if (add_span(p, p->wanted, p->filling, err))
            return TCPSTORE_PARSE_BROKEN;
        p->filling = NULL; /* the span's */
        p->kept = p->count;
        p->wanted = p->filled = 0;
        return TCPSTORE_PARSE_DONE;
    }
    if (!take_u64(p, data, length, &bytes))
        return TCPSTORE_PARSE_MORE;
    if (bytes > limit || p->cursor + p->in_blocks + bytes > TCPSTORE_MESSAGE_LIMIT)
        return reject_string(p, is_key, bytes, limit, err);
    if (length - p->cursor < bytes) {
        p->cursor = start; /* the length is read again with the next bytes */
        p->wanted = (size_t)bytes;
        return TCPSTORE_PARSE_MORE;
    }
    return add_span(p, (size_t)bytes, NULL, err) ? TCPSTORE_PARSE_BROKEN : TCPSTORE_PARSE_DONE;
}

static enum tcpstore_parsed take_list(struct tcpstore_parser *p, const char *data, size_t length, bool pairs,
                                      const struct store_limits *limits, struct muster_error *err)
{
    if (!p->counted) {
        uint64_t count = 0;
        if (!take_u64(p, data, length, &count))
            return TCPSTORE_PARSE_MORE;
        if (count > limits->wait_keys)
            return error_set(err, MUSTER_E_LIMIT, "%s of %" PRIu64 " keys: at most %zu are allowed",
                             tcpstore_query_name(p->query), count, limits->wait_keys);
        p->left = (size_t)count * (pairs ? 2 : 1);
        p->counted = true;
    }
    while (p->left) {
        bool is_key = !pairs || p->left % 2 == 0;
        enum tcpstore_parsed taken = take_string(p, data, length, is_key, limits, err);
        if (taken != TCPSTORE_PARSE_DONE)
            return taken;
        p->left--;
    }
    return TCPSTORE_PARSE_DONE;
}

static enum tcpstore_parsed take_number(struct tcpstore_parser *p, const char *data, size_t length, bool wide)
{
    uint32_t narrow = 0;
    uint64_t number = 0;
    if (wide ? !take_u64(p, data, length, &number) : !take_u32(p, data, length, &narrow))
        return TCPSTORE_PARSE_MORE;
    p->number = wide ? (int64_t)number : (int64_t)narrow;
    return TCPSTORE_PARSE_DONE;
}

enum tcpstore_parsed tcpstore_parse(struct tcpstore_parser *p, const char *data, size_t length,
                                    const struct store_limits *limits, struct muster_error *err)
{
    if (!p->filling)
        p->wanted = 0;
    if (!p->started) {
        if (!length)
            return TCPSTORE_PARSE_MORE;
        bool is_old = p->dialect == TCPSTORE_DIALECT_2_1; /* the same queries from SET to CANCEL_WAIT */
        unsigned query = (unsigned char)data[0];
        unsigned count = is_old ? TCPSTORE_CANCEL_WAIT : TCPSTORE_QUERY_COUNT;
        if (query >= count)
            return error_set(err, MUSTER_E_PROTOCOL, "unknown query %u: this server knows 0 to %u%s", query,
                             count - 1, is_old ? " of torch 2.1" : "");
        p->query = (uint8_t)(query + is_old);
        p->started = true;
        p->field = query_body(p->query);
        p->cursor = 1;
    }
    while (*p->field) {
        enum tcpstore_parsed taken;
        switch (*p->field) {
        case 'u':
        case 'i':
            taken = take_number(p, data, length, *p->field == 'i');
            break;
        case 'k':
        case 'v':
            taken = take_string(p, data, length, *p->field == 'k', limits, err);
            break;
        default:
            taken = take_list(p, data, length, *p->field == 'P', limits, err);
            break;
        }
        if (taken != TCPSTORE_PARSE_DONE)
            return taken;
        p->field++;
    }
    return TCPSTORE_PARSE_DONE;
}

static int no_block(size_t bytes, struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a string of %zu bytes", bytes);
}

int tcpstore_parser_keep(struct tcpstore_parser *p, struct buffer *input, struct muster_error *err)
{
    /* Bytes before `to` are in their place, those from `from` on are not yet looked at. */
    size_t to = p->kept < p->count ? p->spans[p->kept].offset : p->cursor, from = to;
    int result = 0;
    for (; p->kept < p->count; p->kept++) {
        struct tcpstore_span *span = &p->spans[p->kept];
        const size_t before = span->offset - from; /* from the string before it */
        memmove(input->data + to, input->data + from, before);
        to += before;
        from += before;
        if (span->length >= TCPSTORE_SHARED_LEAST && !result) {
            span->block = store_block_create(span->length);
            result = span->block ? 0 : no_block(span->length, err);
        }
        if (span->block) {
            memcpy(store_block_data(span->block), input->data + from, span->length);
            p->in_blocks += span->length;
        } else {
            memmove(input->data + to, input->data + from, span->length);
        }
        span->offset = to;
        to += span->block ? 0 : span->length;
        from += span->length;
    }
    memmove(input->data + to, input->data + from, input->length - from);
    input->length -= from - to;
    p->cursor -= from - to;
    if (result || p->filling || p->wanted < TCPSTORE_SHARED_LEAST)
        return result;
    /* Its length, of eight bytes, stays in the input. */
    const size_t begin = p->cursor + sizeof(uint64_t), there = input->length - begin;
    const size_t room = there < BLOCK_START / 2 ? BLOCK_START : 2 * there;
    p->filling = store_block_create(room < p->wanted ? room : p->wanted);
    if (!p->filling)
        return no_block(p->wanted, err);
    memcpy(store_block_data(p->filling), input->data + begin, there);
    p->filled = there;
    p->in_blocks += p->wanted;
    input->length = p->cursor = begin;
    return 0;
}

size_t tcpstore_parser_takes(const struct tcpstore_parser *p, size_t length, size_t *grows)
{
    const size_t missing = p->filling ? p->wanted - p->filled : 0,
                 takes = missing < length ? missing : length;
    const size_t capacity = p->filling ? store_block_capacity(p->filling) : 0;
    const size_t room = p->filled + takes <= capacity      ? capacity
                        : 2 * capacity + takes < p->wanted ? 2 * capacity + takes
                                                           : p->wanted;
    *grows = room - capacity;
    return takes;
}

int tcpstore_parser_fill(struct tcpstore_parser *p, const char *data, size_t length, struct muster_error *err)
{
    size_t grows;
    const size_t takes = tcpstore_parser_takes(p, length, &grows);
    if (grows) {
        struct store_block *larger = store_block_resize(p->filling, store_block_capacity(p->filling) + grows);
        if (!larger)
            return no_block(p->wanted, err);
        p->filling = larger;
    }
    memcpy(store_block_data(p->filling) + p->filled, data, takes);
    p->filled += takes;
    return 0;
}

static void release_blocks(struct tcpstore_parser *p)
{
    if (!p->in_blocks)
        return;
    for (size_t i = 0; i < p->count; i++)
        store_block_release(p->spans[i].block);
    store_block_release(p->filling);
}

void tcpstore_parser_free(struct tcpstore_parser *p)
{
    release_blocks(p);
    mem_free(p->spans);
    *p = (struct tcpstore_parser){0};
}

void tcpstore_parser_reset(struct tcpstore_parser *p)
{
    if (p->capacity > SPANS_KEPT || p->in_blocks) {
        struct tcpstore_parser fresh = {.dialect = p->dialect};
        tcpstore_parser_free(p);
        *p = fresh;
        return;
    }
    /* After each request: no more than was set. Without blocks there is nothing else. */
    p->started = p->counted = false;
    p->cursor = p->count = p->kept = 0;
    p->number = 0;
}
