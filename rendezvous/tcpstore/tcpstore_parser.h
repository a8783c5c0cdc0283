/* tcpstore_parser.h - parses the bytes of one TCPStore connection into requests; resumes at any byte
 * without reading one twice. Internal to the engine in tcpstore.c. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* A string of the request: in a block of its own, or at an offset, since the input may be reallocated while
 * the request is incomplete. */
struct tcpstore_span {
    size_t offset, length;
    struct store_block *block;
};

struct tcpstore_parser {
    enum tcpstore_dialect dialect; /* set by the caller; kept by reset */
    bool started;                  /* the query byte was read */
    bool counted;                  /* the count of its K or P field was read; a query has at most one */
    uint8_t query;                 /* an enum tcpstore_query once started */
    const char *field;             /* the next field of the query's body */
    size_t left;                   /* strings still missing in the current K or P field */
    size_t cursor;                 /* bytes of the request read so far, without those in blocks; its size
                                      once it is complete */
    int64_t number;                /* the u or i field */
    size_t count;                  /* the strings of the request, in order */
    size_t capacity;
    struct tcpstore_span *spans;
    size_t in_blocks;            /* bytes of the request */
    size_t kept;                 /* spans that tcpstore_parser_keep has moved, or left */
    struct store_block *filling; /* the incomplete string at the cursor, or NULL */
    size_t filled, wanted;       /* bytes of it; wanted also where filling is NULL: 0 if it is complete */
};

enum tcpstore_parsed { TCPSTORE_PARSE_BROKEN = -1, TCPSTORE_PARSE_MORE, TCPSTORE_PARSE_DONE };

/* data and length: the request's bytes received so far, from its first one. BROKEN fills err. */
enum tcpstore_parsed tcpstore_parse(struct tcpstore_parser *p, const char *data, size_t length,
                                    const struct store_limits *limits, struct muster_error *err);
/* Moves the large strings of an incomplete request out of input (whose first byte is its first one) into
 * blocks: each is then held once, also after the store has it. */
int tcpstore_parser_keep(struct tcpstore_parser *p, struct buffer *input, struct muster_error *err);
/* How many of the next `length` bytes the block that is being filled takes, and by how much it has to grow.
 */
size_t tcpstore_parser_takes(const struct tcpstore_parser *p, size_t length, size_t *grows);
/* Takes as many. */
int tcpstore_parser_fill(struct tcpstore_parser *p, const char *data, size_t length,
                         struct muster_error *err);
/* A string of a complete request at data. */
static inline struct store_bytes tcpstore_parser_string(const struct tcpstore_parser *p, const char *data,
                                                        size_t index)
{
    const struct tcpstore_span *span = &p->spans[index];
    return (struct store_bytes){span->block ? store_block_data(span->block) : data + span->offset,
                                span->length};
}
/* Bytes of memory, with and without blocks. */
static inline size_t tcpstore_parser_memory(const struct tcpstore_parser *p, bool blocks)
{
    const size_t unfilled = p->filling ? p->wanted - store_block_capacity(p->filling) : 0;
    return p->capacity * sizeof *p->spans + (blocks ? p->in_blocks - unfilled : 0);
}
/* Ready for the next request; frees a large list of spans. */
void tcpstore_parser_reset(struct tcpstore_parser *p);
void tcpstore_parser_free(struct tcpstore_parser *p);

#endif
