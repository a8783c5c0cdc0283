/* status_board.h - how another thread gets the agent's status: it knocks, the loop answers in its next turn.
 *
 * The agent's state is read by the loop's thread alone. Nothing is copied while nobody asks, what is handed
 * over is never older than the question, and a loop that does not turn is seen by its silence. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_BOARD_H
#define MUSTER_LAUNCHER_STATUS_STATUS_BOARD_H

#include "launcher/loop/loop.h"
#include "launcher/status/status.h"

struct status_board;

struct status_board_options {
    struct loop *loop;
    /* A fresh status, or NULL without memory. On the loop's thread. */
    struct agent_status *(*fill)(void *context);
    void *context;
};

/* The loop's thread. */
struct status_board *status_board_create(const struct status_board_options *options,
                                         struct muster_error *err);

/* One other thread at a time. 0: *status is the caller's (mem_free). -1: MUSTER_E_TIMEOUT where the loop did
 * not answer in time, MUSTER_E_CANCELLED after status_board_close, MUSTER_E_NOMEM. */
int status_board_ask(struct status_board *board, int64_t patience_ns, struct agent_status **status,
                     struct muster_error *err);
/* Since when the oldest question is without an answer; INSTANT_NEVER where none is. Any thread. */
struct instant status_board_unanswered_since(struct status_board *board);

/* Ends every ask, this one and later ones. The loop's thread. */
void status_board_close(struct status_board *board);
/* After the threads that ask are gone. Accepts NULL. */
void status_board_destroy(struct status_board *board);

#endif
