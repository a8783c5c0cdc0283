/* line.h - pure: splits a stream of bytes into whole lines, in bounded memory; the prefix of tee'd lines. */
#ifndef MUSTER_LAUNCHER_OUTPUT_LINE_H
#define MUSTER_LAUNCHER_OUTPUT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

/* A longer line is passed on in pieces of about this size, so that a line of any length needs no more
 * memory. 64 KiB is one read of a full pipe. */
enum { LINE_PIECE_LIMIT = 65536 };

/* The receiver of the pieces. A piece with ends set includes the newline; one without is the beginning or
 * the middle of a line. data is valid during the call only. */
struct line_sink {
    void (*piece)(void *context, const char *data, size_t length, bool ends);
    void *context;
};

struct line_splitter {
    struct buffer partial; /* the part read of a line that has not ended; a zeroed struct is ready */
};

/* Passes every line that ends in data to the sink and keeps the rest. The rest is passed on at once if it
 * ends in '\r' (a progress line), is longer than the limit, or there is no memory to keep it. */
void line_feed(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink);
/* Passes on the kept part, as an unfinished piece. */
void line_flush(struct line_splitter *s, const struct line_sink *sink);
bool line_pending(const struct line_splitter *s);
void line_free(struct line_splitter *s);

/* Values for a prefix. */
struct line_names {
    const char *role, *host, *time;
    int rank, local_rank, node_rank;
    long long restart;
};

/* torchrun's, and ours if lines of several nodes share a console */
#define LINE_PREFIX_ONE_NODE   "[${role_name}${local_rank}]:"
#define LINE_PREFIX_MANY_NODES "[${hostname} ${role_name}${rank}]: "

/* The prefix of one worker's lines, appended: pattern with ${role_name}, ${rank}, ${local_rank}, ${hostname},
 * ${node_rank}, ${restart} and ${time} replaced; the braces may be left out, $$ is a dollar, and anything
 * else stays as it is. */
int line_prefix(const char *pattern, const struct line_names *names, struct buffer *out);
/* Whether the prefix changes with the time. */
bool line_prefix_has_time(const char *pattern);

#endif
