/* agent_board.h - the agent's board (board/board.h): its own node, each second and at every event, and, where
 * it serves the job, the nodes of the others from their notes. Kept in --state-dir for muster report.
 *
 * There is one from the start where the job is shown (--metrics-port, --state-dir), else from when the
 * serving agent wants notes, a client asks, or the server changes. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_BOARD_H
#define MUSTER_LAUNCHER_AGENT_AGENT_BOARD_H

#include "launcher/agent/agent_internal.h"
#include "launcher/board/board.h"

extern const struct agent_part agent_board_part;

/* Brought up to date; NULL without memory. */
struct board *agent_board(struct agent *agent);
/* As it is; NULL: none is kept. */
const struct board *agent_board_kept(const struct agent *agent);
/* The board's time. */
int64_t agent_board_now(const struct agent *agent);

#endif
