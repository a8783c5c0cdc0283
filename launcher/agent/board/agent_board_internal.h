/* agent_board_internal.h - the inside of agent_board.h, for its files: the part and its events
 * (agent_board.c), this node and the file. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_BOARD_INTERNAL_H
#define MUSTER_LAUNCHER_AGENT_AGENT_BOARD_INTERNAL_H

#include <pthread.h>

#include "launcher/agent/board/agent_board.h"
#include "launcher/loop/background_job.h"

#define AGENT_BOARD_SAVE_NS (10 * NS_PER_S)

/* How a worker of this round ended; struct worker does not show who ended it. */
enum ending { ENDING_NONE, ENDING_FAILED, ENDING_STOPPED };

struct agent_board {
    struct board *board; /* NULL: no client looks */
    struct instant due;  /* the next sample; long ago: something has happened */
    int64_t started_ms;  /* the board's time at agent->started */
    struct instant formed, stopping;
    int64_t start_ms, stopped_ms; /* as in board.h, of this node and round */
    unsigned char *endings;       /* enum ending; one for each worker */
    uint64_t told_session;        /* the server that has our whole curve */
    int64_t told_at;              /* time of the last point that it has */
    int64_t told_round;           /* when the last round formed that it has */
    /* the file */
    struct background_watch saving, loading;
    struct board_file *file, *earlier; /* results of saving and loading */
    struct instant save_at;
    /* the log's last warnings; any thread */
    bool taps;
    pthread_mutex_t lock;
    struct log_sink log; /* where they go on to */
    int warning_count;
    char warnings[BOARD_WARNINGS][BOARD_TEXT];
};

/* agent_board_node.c. Before any thread that logs: the log's warnings are kept as they pass. */
void agent_board_tap(struct agent *agent);
/* -1 without memory; to be cleared by the caller in any case. */
int agent_board_fill_node(struct agent *agent, struct board_node *node);
void agent_board_add_point(struct agent *agent, const struct board_node *node, int64_t now);

/* agent_board_node.c: the file in --state-dir */
void agent_board_load(struct agent *agent); /* the file of an earlier agent: this agent goes on */
bool agent_board_keeps_file(const struct agent *agent);
void agent_board_save(struct agent *agent);     /* on a thread; at most one at a time */
void agent_board_save_end(struct agent *agent); /* the last one: waited for, within bounds */

#endif
