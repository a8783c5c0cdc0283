/* status_socket.h - the local end of `muster status`: an abstract Unix socket in the agent's loop.
 *
 * The name, "muster-agent-<uid>-<pid>-<eight digits of the agent's id>", is found in /proc/net/unix, so
 * that it needs no file, no environment variable and no secret, works on a read-only root file system and
 * leaves nothing after a kill. Abstract names have no access control: both sides check the other's
 * credentials instead (SO_PEERCRED). One request a connection, one line; the reply ends with the
 * connection. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_SOCKET_H
#define MUSTER_LAUNCHER_STATUS_STATUS_SOCKET_H

#include "launcher/loop/loop.h"
#include "launcher/status/status.h"

#define STATUS_SOCKET_PREFIX "muster-agent-"

/* symbol, name: the format of the reply. "checkpoint" is a request, and its reply a line: "+RANK PID STEP",
 * the worker that was asked and the steps that it had finished, or "-" and why nothing was done. "saved": how
 * it ended: a line "+", then of each worker that runs "PID saved|failed|none STEP TEXT" of its last
 * checkpoint. "drain" is followed by a request, and its reply has a line (agent_drain.h) */
#define STATUS_QUESTIONS(X)                                                                                  \
    X(STATUS_ASK_TABLE, "table")                                                                             \
    X(STATUS_ASK_JSON, "json")                                                                               \
    X(STATUS_ASK_SUMMARY, "summary")                                                                         \
    X(STATUS_ASK_CHECKPOINT, "checkpoint")                                                                   \
    X(STATUS_ASK_SAVED, "saved")                                                                             \
    X(STATUS_ASK_BOARD, "board")                                                                             \
    X(STATUS_ASK_DRAIN, "drain")

#define STATUS_ENUM(symbol, word) symbol,
enum status_question { STATUS_QUESTIONS(STATUS_ENUM) STATUS_QUESTION_COUNT };
#undef STATUS_ENUM

const char *status_question_word(enum status_question question);

struct status_socket;

struct status_socket_options {
    struct loop *loop;
    const char *agent_id; /* hexadecimal */
    /* A fresh status, or NULL without memory. */
    struct agent_status *(*fill)(void *context);
    /* Asks the workers for a checkpoint; out gets the reply. */
    void (*checkpoint)(void *context, struct buffer *out);
    void (*saved)(void *context, struct buffer *out); /* the result */
    void (*board)(void *context, struct buffer *out); /* the job's board as JSON (board_json.h) */
    void (*drain)(void *context, const char *request, struct buffer *out); /* an operator's (agent_drain.h) */
    void *context;
};

/* All callbacks run on the loop's thread, and never block. */
struct status_socket *status_socket_open(const struct status_socket_options *options,
                                         struct muster_error *err);
/* Accepts NULL. */
void status_socket_close(struct status_socket *server);

#endif
