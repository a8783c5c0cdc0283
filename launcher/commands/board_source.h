/* board_source.h - where a command gets a job's board from: an agent of this machine, an agent's page by its
 * address, or the file of --state-dir. */
#ifndef MUSTER_LAUNCHER_COMMANDS_BOARD_SOURCE_H
#define MUSTER_LAUNCHER_COMMANDS_BOARD_SOURCE_H

#include "launcher/board/board.h"
#include "launcher/commands/agent_choice.h"

/* The first that is set is used; none: the agent of this machine. */
struct board_source {
    const char *command; /* "muster top", in messages */
    const char *url, *token_file;
    const char *state_dir;
    int64_t pid;
    const char *job;
};

/* Owned by the caller (board_free). NULL: *code is the exit code, and err or complaint has the reason. */
struct board *board_source_read(const struct board_source *source, int *code, struct buffer *complaint,
                                struct muster_error *err);

#endif
