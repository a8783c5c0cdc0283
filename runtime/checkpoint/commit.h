/* commit.h - the order in which a checkpoint becomes one, as a table. Pure.
 *
 * A checkpoint is a folder. It is written beside its name, every file synced, renamed into place and made
 * durable; only then are older ones removed. Rank 0 walks the table; the other ranks take part in one of its
 * steps (COMMIT_WRITE). A second table has what all of them do while training goes on. A crash between any
 * two steps leaves every checkpoint that was reported as saved, but for those that the rule of retention
 * removes. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_COMMIT_H
#define MUSTER_RUNTIME_CHECKPOINT_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

/* symbol, what is done in this state, state after success, state after failure */
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

/* The state after one in which the work went well or did not. */
enum commit_state commit_next(const struct commit_row *table, enum commit_state state, bool good);
/* Whether nothing is left to do. */
bool commit_ended(enum commit_state state);

/* While steps go on, what a rank does for a checkpoint, from the folder's making to its end. All ranks are in
 * the same state: in each step, or between two where one is waited for, they add up how many have ended a
 * state's work and how many of these have failed, and go on by these sums between steps. So it is committed
 * when every rank has written, and nothing is removed under a rank that still writes. symbol, whose work it
 * is, what is done, state after success of all, state after a failure of one */
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

/* What the ranks have done of a state's work. */
struct save_votes {
    double ended, failed; /* failed ones have ended too */
};
/* Whether a rank has work in this state. */
bool save_works(const struct save_row *table, enum save_state state, int rank);
/* votes: of all `ranks` ranks. behind: the checkpoint before it has not ended: rank 0 walks one table at a
 * time, the older one's first. */
enum save_state save_next(const struct save_row *table, enum save_state state, struct save_votes votes,
                          int ranks, bool behind);
bool save_ended(enum save_state state);
/* Two may be on their way: one that is written, and behind it one whose files are whole and that rank 0
 * commits meanwhile. Whether another one may begin, by the states of those that there are (`count`). */
enum { SAVES_AT_ONCE = 2 };
bool save_may_begin(const enum save_state *states, int count);

/* Which checkpoints stay when `step` has just been saved: itself; of those before it the newest, so that
 * `last` stay in all; every multiple of `every` (0: none); and the best. Later ones were refused when this
 * run resumed before them, and are left alone. */
struct retention {
    int64_t last;  /* at least 1 */
    int64_t every; /* steps */
    int64_t best;  /* that of this step stays too; 0: none */
    int64_t
        best_before; /* likewise, before this one became it: if this one is not saved it is the best again */
    int64_t good;    /* step of the newest that is known to be whole; -1: none is */
};
/* steps: those that there are, in any order. Fills remove[count]. */
void retention_choose(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                      bool *remove);
/* Which one makes room where the disk was full for another: never the newest that is whole, and none where
 * that is not known; of the others the oldest that retention would remove some day, then the oldest multiple
 * of `every`, then the best. held[i]: it must stay now. Its index, or -1. */
int retention_give_up(const struct retention *retention, const int64_t *steps, const bool *held, int count);

#endif
