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

/* A zeroed struct is ready. */
struct line_splitter {
    struct buffer partial; /* the part read of a line that has not ended */
    bool states;           /* set by the caller: progress lines wait for line_state */
    bool shown;            /* line_state passed on a state of the line that has not ended */
};

/* Passes every line that ends in data to the sink and keeps the rest. The rest is passed on at once if it is
 * longer than the limit, or there is no memory to keep it; without states also if it ends in '\r'.
 *
 * A progress line rewrites itself with '\r': "\r10%\r20%\n" has two states. With states the rest waits for
 * line_state, and a line of which a state was passed on ends with its latest state alone. Earlier states are
 * left out, as on a terminal. A line that ends before is passed on whole. */
void line_feed(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink);
/* Whether the kept part is a progress line. */
bool line_has_state(const struct line_splitter *s);
/* Passes on the latest state of a progress line, ended by one '\r', and forgets the kept part. Returns
 * whether there was one. */
bool line_state(struct line_splitter *s, const struct line_sink *sink);
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
