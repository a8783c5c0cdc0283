/* tcpstore_parser.c - see tcpstore_parser.h. The table TCPSTORE_QUERIES has the bodies. */
#include "rendezvous/tcpstore/tcpstore_parser.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

/* A list of spans longer than this is freed after the request that needed it. */
enum { SPANS_KEPT = 64 };

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

static int add_span(struct tcpstore_parser *p, size_t length, struct muster_error *err)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 4;
        struct tcpstore_span *spans = mem_realloc(p->spans, capacity, sizeof *spans);
        if (!spans)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a request of %zu strings", capacity);
        p->spans = spans;
        p->capacity = capacity;
    }
    p->spans[p->count++] = (struct tcpstore_span){.offset = p->cursor, .length = length};
    p->cursor += length;
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
    if (!take_u64(p, data, length, &bytes))
        return TCPSTORE_PARSE_MORE;
    if (bytes > limit || p->cursor + bytes > TCPSTORE_MESSAGE_LIMIT)
        return reject_string(p, is_key, bytes, limit, err);
    if (length - p->cursor < bytes) {
        p->cursor = start; /* the length is read again with the next bytes */
        return TCPSTORE_PARSE_MORE;
    }
    return add_span(p, (size_t)bytes, err) ? TCPSTORE_PARSE_BROKEN : TCPSTORE_PARSE_DONE;
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

void tcpstore_parser_free(struct tcpstore_parser *p)
{
    mem_free(p->spans);
    *p = (struct tcpstore_parser){0};
}

void tcpstore_parser_reset(struct tcpstore_parser *p)
{
    const enum tcpstore_dialect dialect = p->dialect;
    if (p->capacity > SPANS_KEPT)
        tcpstore_parser_free(p);
    *p = (struct tcpstore_parser){.dialect = dialect, .spans = p->spans, .capacity = p->capacity};
}
