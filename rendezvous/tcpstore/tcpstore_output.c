/* tcpstore_output.c - see tcpstore_output.h.
 *
 * A piece knows how many of the connection's own bytes come before it. The order is own bytes up to the first
 * piece, that piece, own bytes up to the next one, and so on. */
#include "rendezvous/tcpstore/tcpstore_output.h"

#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* An empty output frees more memory than this: thousands of workers are connected and idle. */
enum { OUTPUT_KEPT = 4096 };

static bool output_takes(struct tcpstore_output *o, size_t length)
{
    o->failed |= length > TCPSTORE_MESSAGE_LIMIT || o->waiting + length > TCPSTORE_MESSAGE_LIMIT;
    return !o->failed;
}

void tcpstore_output_copy(struct tcpstore_output *o, const void *data, size_t length)
{
    if (!output_takes(o, length))
        return;
    if (buffer_append(&o->own, data, length))
        o->failed = true;
    else
        o->waiting += length;
}

void tcpstore_output_share(struct tcpstore_output *o, struct store *store, struct store_owner *owner,
                           struct store_bytes value)
{
    if (value.length < TCPSTORE_SHARED_LEAST) {
        tcpstore_output_copy(o, value.data, value.length);
        return;
    }
    if (!output_takes(o, value.length))
        return;
    struct tcpstore_piece *piece = mem_calloc(1, sizeof *piece);
    if (!piece) {
        o->failed = true;
        return;
    }
    piece->after = o->own_dropped + o->own.length;
    piece->data = value.data;
    piece->length = value.length;
    store_hold(store, &piece->hold, value.data, owner);
    *(o->first ? &o->last->next : &o->first) = piece;
    o->last = piece;
    o->pieces++;
    o->waiting += value.length;
}

/* Own bytes that come before the piece; NULL: all. */
static size_t own_before(const struct tcpstore_output *o, const struct tcpstore_piece *piece)
{
    return piece ? (size_t)(piece->after - o->own_dropped) : o->own.length;
}

size_t tcpstore_output_parts(const struct tcpstore_output *o, struct iovec *parts, size_t most)
{
    const struct tcpstore_piece *piece = o->first;
    size_t count = 0, own = o->own_sent, skip = o->first_sent;
    while (count < most) {
        const size_t until = own_before(o, piece);
        if (own < until)
            parts[count++] = (struct iovec){o->own.data + own, until - own};
        own = until;
        if (!piece)
            break;
        if (count < most)
            parts[count++] = (struct iovec){(char *)piece->data + skip, piece->length - skip};
        skip = 0;
        piece = piece->next;
    }
    return count;
}

static void drop_first(struct tcpstore_output *o, struct store *store)
{
    struct tcpstore_piece *piece = o->first;
    o->first = piece->next;
    o->first_sent = 0;
    o->pieces--;
    store_hold_end(store, &piece->hold);
    mem_free(piece);
}

void tcpstore_output_sent(struct tcpstore_output *o, struct store *store, size_t length)
{
    o->waiting -= length;
    while (length > 0) {
        const size_t own = own_before(o, o->first) - o->own_sent;
        if (own > 0) {
            const size_t now = own < length ? own : length;
            o->own_sent += now;
            length -= now;
            continue;
        }
        const size_t left = o->first->length - o->first_sent, now = left < length ? left : length;
        o->first_sent += now;
        length -= now;
        if (now == left)
            drop_first(o, store);
    }
    if (!o->waiting) {
        o->own_sent = 0;
        o->own_dropped = 0;
        if (o->own.capacity > OUTPUT_KEPT)
            buffer_free(&o->own);
        else
            buffer_clear(&o->own);
    } else if (o->own_sent > o->own.length / 2) {
        buffer_consume(&o->own, o->own_sent);
        o->own_dropped += o->own_sent;
        o->own_sent = 0;
    }
}

size_t tcpstore_output_cost(size_t value_length)
{
    const size_t more = value_length < TCPSTORE_SHARED_LEAST ? value_length : sizeof(struct tcpstore_piece);
    return (sizeof(uint64_t) + more) * 3 / 2; /* a buffer grows by a half */
}

void tcpstore_output_free(struct tcpstore_output *o, struct store *store)
{
    while (o->first)
        drop_first(o, store);
    buffer_free(&o->own);
    *o = (struct tcpstore_output){0};
}
