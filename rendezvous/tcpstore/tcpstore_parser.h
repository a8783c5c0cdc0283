/* tcpstore_parser.h - parses the bytes of one TCPStore connection into requests; resumes at any byte
 * without reading one twice. Internal to the engine in tcpstore.c. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* A string of the request, as an offset: the input may be reallocated while the request is incomplete. */
struct tcpstore_span {
    size_t offset, length;
};

struct tcpstore_parser {
    enum tcpstore_dialect dialect; /* set by the caller; kept by reset */
    bool started;                  /* the query byte was read */
    bool counted;                  /* the count of its K or P field was read; a query has at most one */
    uint8_t query;                 /* an enum tcpstore_query once started */
    const char *field;             /* the next field of the query's body */
    size_t left;                   /* strings still missing in the current K or P field */
    size_t cursor;                 /* bytes of the request read so far; its size once it is complete */
    int64_t number;                /* the u or i field */
    size_t count;                  /* the strings of the request, in order */
    size_t capacity;
    struct tcpstore_span *spans;
};

enum tcpstore_parsed { TCPSTORE_PARSE_BROKEN = -1, TCPSTORE_PARSE_MORE, TCPSTORE_PARSE_DONE };

/* data and length: the request's bytes received so far, from its first one. BROKEN fills err. */
enum tcpstore_parsed tcpstore_parse(struct tcpstore_parser *p, const char *data, size_t length,
                                    const struct store_limits *limits, struct muster_error *err);
/* Ready for the next request; frees a large list of spans. */
void tcpstore_parser_reset(struct tcpstore_parser *p);
void tcpstore_parser_free(struct tcpstore_parser *p);

#endif
