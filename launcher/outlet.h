/* outlet.h - a bounded queue of text and a thread that writes it, so that a slow or stuck console or disk
 * never holds the thread that supervises.
 *
 * The thread starts with the first piece. Pieces of one owner that make up a line are kept together: where
 * another owner's piece comes in between, the open line is ended first, and what follows gets its prefix
 * again. Whole lines reach the descriptor by one write each, several short ones by one write of at most
 * PIPE_BUF bytes (which a pipe takes in one), and no descriptor is ever switched to non-blocking. */
#ifndef MUSTER_LAUNCHER_OUTLET_H
#define MUSTER_LAUNCHER_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* Bytes that wait, at most; as many again may be in the thread's hands. */
enum { OUTLET_LIMIT = 512 * 1024 };

struct outlet_piece {
    int fd;             /* where it goes; must stay open until outlet_finish */
    const void *owner;  /* whose line it is a piece of; NULL: raw bytes, no lines, no prefix */
    const char *prefix; /* before each line of the owner; may be NULL */
    size_t prefix_length;
    const char *data;
    size_t length;
    bool ends; /* the piece ends its line */
    bool must; /* taken beyond the limit too: the caller asked for room before it read */
};

struct outlet_lost {
    uint64_t pieces, bytes; /* given to outlet_drop, or refused by the descriptor */
    int error;              /* errno of the last refusal, 0 for none */
};

struct outlet;

/* wake_fd: an eventfd that is added to when there is room again after it was missed, and when a write failed
 * for the first time. name is used in the line that tells of dropped ones ("the console"). */
struct outlet *outlet_create(const char *name, int wake_fd, struct muster_error *err);
/* Takes a copy of the piece; false: there is no room, nothing was taken. Any thread. */
bool outlet_put(struct outlet *o, const struct outlet_piece *piece);
/* The caller gives up a piece: it is counted, and the next piece that fits is preceded by a line that says
 * how many were dropped. */
void outlet_drop(struct outlet *o, const struct outlet_piece *piece);
/* The owner goes, and its address may become another's: a line that it left open is nobody's now. */
void outlet_forget(struct outlet *o, const void *owner);
/* Bytes that fit before the limit; asking where there are fewer than `wanted` arms wake_fd. */
size_t outlet_room(struct outlet *o, size_t wanted);
/* Closes fd when everything that was put for it is written. Accepts -1. */
void outlet_close(struct outlet *o, int fd);
/* Since when the thread has been inside one write; INSTANT_NEVER where it is not. */
struct instant outlet_busy_since(struct outlet *o);
struct outlet_lost outlet_lost(struct outlet *o);
/* Waits until everything is written and ends the thread. Gives up where one write takes longer than patience:
 * then the outlet is left to the thread that hangs in it, which frees it if it ever gets on, and the
 * bytes not written are returned. Accepts NULL. */
size_t outlet_finish(struct outlet *o, int64_t patience_ns);

#endif
