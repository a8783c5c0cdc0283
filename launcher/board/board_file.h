/* board_file.h - the board of a job in --state-dir, as JSON (board_json.h): written by a thread, since the
 * volume may not respond; read by muster report. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_FILE_H
#define MUSTER_LAUNCHER_BOARD_BOARD_FILE_H

#include "launcher/board/board.h"
#include "launcher/loop/background_job.h"

#define BOARD_FILE_SUFFIX ".muster-board.json"

/* directory/job.muster-board.json, owned by the caller; NULL without memory. */
char *board_file_path(const char *directory, const char *job);

/* What the thread writes; the job's. */
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
