/* tcpstore_parser.h - cuts the bytes of one TCPStore connection into requests; resumes at any byte without
 * looking at one twice. Internal to the engine in tcpstore.c. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* A string of the request, by place: the input may move while the request is still arriving. */
struct tcpstore_span {
    size_t offset, length;
};

struct tcpstore_parser {
    enum tcpstore_dialect dialect; /* the caller's; kept by reset */
    bool started;                  /* the query byte was read */
    bool counted;                  /* the count of the present K or P field was read */
    uint8_t query;                 /* an enum tcpstore_query once started */
    const char *field;             /* what comes next in the query's body */
    size_t left;                   /* strings still to come in the present K or P field */
    size_t cursor;                 /* bytes of the request read so far; its size once it is complete */
    int64_t number;                /* the u or i field */
    size_t count;                  /* the strings of the request, in order */
    size_t capacity;
    struct tcpstore_span *spans;
};

enum tcpstore_parsed { TCPSTORE_PARSE_BROKEN = -1, TCPSTORE_PARSE_MORE, TCPSTORE_PARSE_DONE };

/* data and length: all bytes of the request that are there, from its first one. BROKEN fills err. */
enum tcpstore_parsed tcpstore_parse(struct tcpstore_parser *p, const char *data, size_t length,
                                    const struct store_limits *limits, struct muster_error *err);
/* Ready for the next request; a large list of spans is given back. */
void tcpstore_parser_reset(struct tcpstore_parser *p);
void tcpstore_parser_free(struct tcpstore_parser *p);

#endif
