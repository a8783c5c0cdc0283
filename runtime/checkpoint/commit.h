/* commit.h - the steps that make a folder a checkpoint, as a table. Pure.
 *
 * A checkpoint is a folder. It is written under a hidden name, every file is synced, and it is renamed into
 * place and made durable. Only then are older checkpoints removed. Rank 0 walks the table; the other ranks
 * take part in the state COMMIT_WRITE. A second table has the work of all ranks while training goes on. A
 * crash between any two steps leaves every checkpoint that was reported as saved, except checkpoints that the
 * rule of retention removes. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_COMMIT_H
#define MUSTER_RUNTIME_CHECKPOINT_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

/* symbol, work in this state, state after success, state after failure */
#define COMMIT_STATES(X)                                                                                     \
    X(COMMIT_MAKE, "makes the hidden folder, as every rank does", COMMIT_WRITE, COMMIT_FAILED)               \
    X(COMMIT_WRITE, "every rank writes and syncs its file in it", COMMIT_MANIFEST, COMMIT_CLEAN)             \
    X(COMMIT_MANIFEST, "writes and syncs the manifest", COMMIT_SYNC_INSIDE, COMMIT_CLEAN)                    \
    X(COMMIT_SYNC_INSIDE, "syncs the hidden folder", COMMIT_RETIRE, COMMIT_CLEAN)                            \
    X(COMMIT_RETIRE, "hides a damaged folder of the same name", COMMIT_PLACE, COMMIT_CLEAN)                  \
    X(COMMIT_PLACE, "renames the hidden folder to its name", COMMIT_SYNC_OUTSIDE, COMMIT_CLEAN)              \
    X(COMMIT_SYNC_OUTSIDE, "syncs the folder of all checkpoints", COMMIT_PRUNE, COMMIT_FAILED)               \
    X(COMMIT_PRUNE, "removes what retention does not keep", COMMIT_DONE, COMMIT_DONE)                        \
    X(COMMIT_CLEAN, "removes the hidden folder", COMMIT_FAILED, COMMIT_FAILED)                               \
    X(COMMIT_DONE, "saved", COMMIT_DONE, COMMIT_DONE)                                                        \
    X(COMMIT_FAILED, "not saved", COMMIT_FAILED, COMMIT_FAILED)
enum commit_state {
#define COMMIT_STATE_ENUM(symbol, what, good, bad) symbol,
    COMMIT_STATES(COMMIT_STATE_ENUM)
#undef COMMIT_STATE_ENUM
        COMMIT_STATE_COUNT
};

struct commit_row {
    enum commit_state good, bad;
};
extern const struct commit_row commit_table[COMMIT_STATE_COUNT];

/* The state after `state`, if its work succeeded (good) or failed. */
enum commit_state commit_next(const struct commit_row *table, enum commit_state state, bool good);
/* Whether nothing is left to do. */
bool commit_ended(enum commit_state state);

/* A rank's work on a checkpoint while steps go on, from the making of the folder to the end. All ranks are in
 * the same state. They sum how many ranks have ended a state's work, and how many of these have failed: in
 * each step, or between two steps if the caller waits. Between steps they move on by these sums. So a
 * checkpoint is committed when every rank has written, and no folder is removed while a rank still writes in
 * it. symbol, which ranks work, the work, state after success of all, state after a failure of one */
#define SAVE_STATES(X)                                                                                       \
    X(SAVE_WRITE, SAVE_ALL, "every rank writes its file", SAVE_COMMIT, SAVE_UNDO)                            \
    X(SAVE_COMMIT, SAVE_LEAD, "rank 0 walks the table above, from COMMIT_WRITE on", SAVE_COPY, SAVE_FAILED)  \
    X(SAVE_COPY, SAVE_ALL, "nodes with copies take the manifest", SAVE_DONE, SAVE_DONE)                      \
    X(SAVE_UNDO, SAVE_LEAD, "rank 0 walks it as after a failure", SAVE_FAILED, SAVE_FAILED)                  \
    X(SAVE_DONE, SAVE_LEAD, "saved", SAVE_DONE, SAVE_DONE)                                                   \
    X(SAVE_FAILED, SAVE_LEAD, "not saved", SAVE_FAILED, SAVE_FAILED)
enum save_state {
#define SAVE_STATE_ENUM(symbol, by, what, good, bad) symbol,
    SAVE_STATES(SAVE_STATE_ENUM)
#undef SAVE_STATE_ENUM
        SAVE_STATE_COUNT
};
enum save_by { SAVE_ALL, SAVE_LEAD };
struct save_row {
    enum save_by by;
    enum save_state good, bad;
};
extern const struct save_row save_table[SAVE_STATE_COUNT];

/* Number of ranks that have ended a state's work. */
struct save_votes {
    double ended, failed; /* ranks that failed count as ended too */
};
/* Whether a rank has work in this state. */
bool save_works(const struct save_row *table, enum save_state state, int rank);
/* votes: sums over all `ranks` ranks. `behind`: the checkpoint before this checkpoint has not ended: rank 0
 * walks one table at a time, the older checkpoint's first. */
enum save_state save_next(const struct save_row *table, enum save_state state, struct save_votes votes,
                          int ranks, bool behind);
bool save_ended(enum save_state state);
/* Two checkpoints may be open: a checkpoint that is being written, and an older checkpoint with all files
 * written, which rank 0 commits. Returns whether another checkpoint may begin, by the states of the `count`
 * open checkpoints. */
enum { SAVES_AT_ONCE = 2 };
bool save_may_begin(const enum save_state *states, int count);

/* Which checkpoints stay when `step` has just been saved: this checkpoint, the newest before it, so that
 * `last` stay in all, every multiple of `every` (0: none), and the best. Checkpoints after `step` were
 * refused when this run resumed before them, and are left alone. */
struct retention {
    int64_t last;        /* checkpoints; at least 1 */
    int64_t every;       /* steps */
    int64_t best;        /* step of the best checkpoint, which stays too; 0: none */
    int64_t best_before; /* step of the best before this checkpoint became the best: it is the best again if
                            this checkpoint is not saved; 0: none */
    int64_t good;        /* step of the newest checkpoint that is known to be whole; -1: none is */
};
/* steps: all checkpoints, in any order. Fills remove[count]. */
void retention_choose(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                      bool *remove);
/* Index of the checkpoint to remove after the disk was full; -1: none. It is never the newest whole
 * checkpoint, and none if that checkpoint is not known. The order is: the oldest that retention would remove
 * some day, then the oldest multiple of `every`, then the best. held[i]: it must stay now. */
int retention_give_up(const struct retention *retention, const int64_t *steps, const bool *held, int count);

#endif
