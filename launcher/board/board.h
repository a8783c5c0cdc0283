/* board.h - pure: the data of the job's page, a bounded model of one job: nodes and their ranks, rounds with
 * the time that each recovery took, curves of the training, the verdict.
 *
 * Each agent keeps a board with its own node on it; the serving agent's has the nodes of all others as well,
 * from the notes that they send (board_note.h). The agent that keeps one calls board_world, board_stop and
 * board_verdict when its agent gets them, and board_take for each fresh state of a node. Times are the
 * keeper's: milliseconds since 1970 (`now`); a time from another node is an age or a duration, never a
 * reading of its clock. -1 is "not known", NAN for figures.
 *
 * Memory is bounded: BOARD_NODES nodes with BOARD_RANKS ranks in all, and above that BOARD_FAILED_RANKS of
 * nodes with a failed rank; a sum for each other node; BOARD_LINES_BYTES of text a rank, BOARD_ROUNDS rounds
 * (the first and the latest), BOARD_CHANGES changes of the server (the latest), BOARD_POINTS points of a
 * curve (when it is full every other one is dropped and as many seconds are let pass from then on, so that
 * the whole run is on it).
 */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_H
#define MUSTER_LAUNCHER_BOARD_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/policy/figures.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum {
    BOARD_NODES = 1024,
    BOARD_RANKS = 4096,
    BOARD_FAILED_RANKS = 1024,
    BOARD_SUMS = 16384,
    BOARD_SINGLE_NODES = 256, /* more are shown as blocks of nodes, and only the notable ones one by one */
    BOARD_BLOCKS = 128,
    BOARD_NOTABLE = 64,
    BOARD_NODE_RANKS = 1024, /* ranks of one node */
    BOARD_LINES_BYTES = 1024,
    BOARD_ROUNDS = 64,
    BOARD_CHANGES = 16,
    BOARD_VOTERS = 5,
    BOARD_POINTS = 512,
    BOARD_WARNINGS = 8,
    BOARD_TEXT = 256,
    BOARD_WORD = 20,
    BOARD_NAME = 128,
};

struct board_rank {
    int rank, local_rank, pid;   /* pid 0: not started in this round */
    char state[BOARD_WORD];      /* "absent", "running", "exited", "failed" */
    int exit_code, signal;       /* failed: exit_code -1 where a signal ended it; signal 0 where none did */
    int64_t step;                /* step of its last heartbeat */
    int64_t beat_ms;             /* age of that */
    int64_t first_step;          /* step of its first heartbeat with a step in this round */
    int64_t first_beat_ms;       /* age of that */
    int64_t memory;              /* resident bytes of its process */
    int64_t import_ms, first_ms; /* from its start: to its import mark, to its first heartbeat with a step */
    int64_t ended_ms;            /* age of its end */
    int64_t slow_seen;           /* times that the others waited for it; the keeper's count */
    struct worker_figures figures;
    char *lines; /* its last lines, newline-separated; NULL: none are known */
};

struct board_node {
    int member; /* whose notes: the keeper's own is -1 */
    char host[BOARD_NAME];
    int group_rank; /* -1: not in a world yet */
    int64_t round;  /* round of its ranks; -1 */
    char state[BOARD_WORD];
    int64_t heard_at;   /* when its last state was taken */
    int64_t start_ms;   /* from the world to its workers' start */
    int64_t stopped_ms; /* from the stop to the end of its last worker */
    int warning_count;
    char warnings[BOARD_WARNINGS][BOARD_TEXT];
    int rank_count;
    struct board_rank *ranks;
};

/* Nodes with group ranks first to last, added up. */
struct board_block {
    int first, last;
    int nodes, silent, ranks, running, failed, exited;
    int64_t low_step, high_step; /* -1: no rank has one */
    int64_t memory;              /* resident bytes of all processes */
};

/* A node without room for its ranks. */
struct board_sum {
    bool there;
    int64_t round, heard_at;
    struct board_block of;
};

struct board_point {
    int64_t at, step;
    double loss, tokens_per_s, step_ms, exposed_ms;
};

/* A round and, from round 1 on, how the job came to it: the time from the failure to its detection, for the
 * stop of all workers, the next world, the start of the workers, their imports and the first step. */
struct board_round {
    uint64_t epoch; /* the server that formed it, which counts the rounds; 0: not known */
    int64_t number;
    int64_t formed_at, stop_at; /* stop_at: -1 while it runs */
    int64_t failed_at;          /* time of its first failure, as near as is known */
    bool failed_late;           /* a rank failed, by a state that came after the stop: see note_failure */
    int nodes, world_size;
    int64_t restarts;       /* counted restarts of the job so far */
    bool planned;           /* stopped for nodes that come or go */
    char cause[BOARD_TEXT]; /* why it was stopped; "" */
    int64_t stopped_ms;     /* the longest of its nodes */
    int64_t detect_ms, stop_ms, form_ms, start_ms, import_ms, first_ms;
    int64_t first_step, last_step, first_step_at, last_step_at;
    bool earlier; /* from another keeper's board: causes that arrive here are not about it */
};

/* A change of the agent that serves the job, as the keeper learned it. */
struct board_change {
    int64_t at;
    char server[BOARD_NAME]; /* "": none serves */
    char reason[BOARD_TEXT];
};

struct board {
    char version[BOARD_WORD], job[BOARD_NAME], program[BOARD_NAME], state[BOARD_WORD];
    char waiting[BOARD_TEXT]; /* nodes that are waited for; "" */
    char server[BOARD_NAME];  /* the node that serves the job, by its name; "" */
    bool serves;              /* the keeper does: all nodes are here */
    int voter_count;          /* who elect the next server; fewer than 2: none can be elected */
    char voters[BOARD_VOTERS][BOARD_NAME];
    int change_count;
    struct board_change changes[BOARD_CHANGES]; /* the oldest first */
    int min_nodes, max_nodes;
    int64_t max_restarts;
    int64_t started_at, now; /* now: of the last change */
    bool over;
    int exit_code;
    char verdict[BOARD_TEXT];              /* the first cause; "" */
    int node_count, ranks_total, left_out; /* nodes for which there was no room */
    struct board_node *nodes;              /* by group rank */
    int sum_count;
    struct board_sum *sums; /* at their group rank */
    /* of a board that was read, which has the notable nodes alone */
    struct board_block total; /* no nodes: none was read */
    int block_count;
    struct board_block blocks[BOARD_BLOCKS];
    int round_count;
    int64_t rounds_left_out; /* between the first and the second that are kept */
    struct board_round rounds[BOARD_ROUNDS];
    int point_count;
    int64_t point_gap_ms; /* between two points at least */
    int point_member;     /* whose points they are */
    struct board_point points[BOARD_POINTS];
};

/* Copies a text, cut where it is too long; NULL is "". */
void board_text(char *out, size_t size, const char *text);

/* NULL without memory. */
struct board *board_create(int64_t now);
void board_free(struct board *board);
/* Frees the memory of a node, not the node itself; zeroes it. */
void board_node_clear(struct board_node *node);
/* A node with so many ranks, all not known; -1: no memory, or above BOARD_NODE_RANKS. */
int board_node_init(struct board_node *node, int rank_count, struct muster_error *err);

struct board_world {
    uint64_t epoch;
    int64_t round, restarts;
    int nodes, world_size;
    const char *cause; /* cause of the stop before it; "" */
};
void board_world(struct board *board, const struct board_world *world, int64_t now);
/* The present round is stopped. cause: "" where none is known. */
void board_stop(struct board *board, bool planned, const char *cause, int64_t now);
void board_verdict(struct board *board, int exit_code, const char *cause, int64_t now);
/* Another agent serves the job now, or none does (server ""). The same once more is no change. */
void board_server_moved(struct board *board, const char *server, const char *reason, int64_t now);

/* A fresh state of a node takes the place of that member's last one; its contents are moved out of node. A
 * node for which there is no room is counted. */
void board_take(struct board *board, struct board_node *node, int64_t now);
/* A point of the curves, where its time has come. Points of one member at a time: of the one with the lowest
 * group rank that has any. */
void board_point(struct board *board, int member, const struct board_point *point);
/* The curve of another keeper (the last server's) where it begins earlier than ours. */
void board_points(struct board *board, int member, const struct board_point *points, int count);
/* NULL: there was none yet. */
struct board_round *board_present_round(struct board *board);
/* Rounds of another keeper, or of an earlier life of this one, from the oldest: unknown ones take their
 * places before ours; the job began at started_at. */
void board_history(struct board *board, const struct board_round *rounds, int count, int64_t started_at);
/* NULL: it has sent nothing. */
struct board_node *board_find(struct board *board, int member);
const struct board_rank *board_rank_find(const struct board *board, int rank);
/* The running ranks' lowest and highest step; false: none has one. */
bool board_steps(const struct board *board, int64_t *lowest, int64_t *highest);
/* The rank that the others waited for most often; NULL: none. */
const struct board_rank *board_slowest(const struct board *board);
/* --- board_blocks.c: jobs of more nodes than are shown one by one --- */

/* Between two states that a node of a job sends: all together are about 1,000 a second at most. A node is
 * silent after three. */
int64_t board_sample_ms(int nodes);
struct board_block board_block_of(const struct board_node *node);
/* Whether the sum of a node without room is kept. */
bool board_keep_sum(struct board *board, const struct board_node *node, int64_t now);
void board_forget_sum(struct board *board, int group_rank);
void board_forget_sums_before(struct board *board, int64_t round);
bool board_is_silent(const struct board *board, const struct board_node *node, int64_t now);
/* All nodes. */
struct board_block board_total(const struct board *board, int64_t now);
/* How many blocks; 0: the nodes are shown one by one. */
int board_blocks(const struct board *board, int64_t now, struct board_block blocks[BOARD_BLOCKS]);

/* launcher/policy/goodput.h, over the board's rounds. NAN: no steps were made. */
double board_goodput(const struct board *board, int64_t now);
/* From the failure to the first step after it; -1 where a part is not known. */
int64_t board_recovery_ms(const struct board_round *round);

/* x, or the bound that it is beyond; low for NAN. fmin and fmax would have each start load libm. */
static inline double board_within(double x, double low, double high)
{
    return !(x > low) ? low : x > high ? high : x;
}

#endif
