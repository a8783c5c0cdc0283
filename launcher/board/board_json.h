/* board_json.h - a board as JSON, and back: for the page and muster top, for the file in --state-dir (muster
 * report), and the notes that agents send to the serving one about their node.
 *
 * Texts are whatever workers and hosts have written: they are cleaned of control characters, and a program
 * that shows them has to quote them. Everything read is checked (kinds, ranges, counts) against the limits of
 * board.h. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_JSON_H
#define MUSTER_LAUNCHER_BOARD_BOARD_JSON_H

#include "launcher/board/board.h"
#include "launcher/loop/background_job.h"

enum {
    BOARD_JSON_LIMIT = 3 << 20,
    BOARD_NOTE_LIMIT = 32 * 1024,
    BOARD_NOTE_ROUNDS = 8,
    BOARD_JSON_LINES_RANKS = 512
};

/* lines: the last lines of every rank are in it, of up to BOARD_JSON_LINES_RANKS ranks. One object, appended;
 * out remembers a failure. */
void board_json(const struct board *board, int64_t now, bool lines, struct buffer *out);
/* {"rank": 3, "lines": "..."}; without lines where the rank or its lines are not known. */
void board_lines_json(const struct board *board, int rank, struct buffer *out);
/* The board of board_json, owned by the caller. Ages are turned into times by `now`. NULL: MUSTER_E_INVALID,
 * MUSTER_E_LIMIT, MUSTER_E_NOMEM. */
struct board *board_read(const char *name, const char *text, size_t length, int64_t now,
                         struct muster_error *err);

/* A note: one node's state, points of its curve, rounds that it has seen end; since when it is in
 * the job. */
struct board_note {
    const struct board_node *node;
    const struct board_point *points;
    int point_count;
    const struct board_round *rounds; /* at most BOARD_NOTE_ROUNDS */
    int round_count;
    int64_t started_at;
};
/* Within BOARD_NOTE_LIMIT; lines are left out first, then points. Times become ages. */
int board_note_write(const struct board_note *note, int64_t now, struct buffer *out,
                     struct muster_error *err);
/* A received note: the node's contents are the caller's (board_node_clear), also on failure. */
struct board_note_read {
    struct board_node node;
    int point_count, round_count;
    int64_t started_at;
    struct board_point points[BOARD_POINTS];
    struct board_round rounds[BOARD_NOTE_ROUNDS];
};
int board_note_read(const char *text, size_t length, int64_t now, struct board_note_read *out,
                    struct muster_error *err);

/* --- the file ---
 *
 * The board of a job in --state-dir, as JSON (board_json.h): written by a thread, since the volume may not
 * respond; read by muster report. */

#define BOARD_FILE_SUFFIX ".muster-board.json"

/* directory/job.muster-board.json, owned by the caller; NULL without memory. */
char *board_file_path(const char *directory, const char *job);

/* The text that the thread writes; the job's. */
struct board_file;
/* Starts to write the board as it is now: a whole new file takes the old one's place. *file is valid until
 * the job is released. NULL: err. */
struct background_job *board_file_write(const char *directory, const struct board *board, int64_t now,
                                        struct board_file **file, struct muster_error *err);
/* Once the job is done; code 0: it is written. */
const struct muster_error *board_file_error(const struct board_file *file);

/* Starts to read the board that an earlier agent of the job has left. */
struct background_job *board_file_load(const char *directory, const char *job, struct board_file **file,
                                       struct muster_error *err);
/* Once the job is done: that board, which is the caller's; NULL where there is none, or it
 * cannot be read (board_file_error). */
struct board *board_file_take(struct board_file *file);

/* Owned by the caller. NULL: MUSTER_E_NOT_FOUND, MUSTER_E_INVALID ... */
struct board *board_file_read(const char *path, struct muster_error *err);

#endif
