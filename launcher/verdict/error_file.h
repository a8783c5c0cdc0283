/* error_file.h - pure: the file to which a worker writes its exception (TORCHELASTIC_ERROR_FILE; PyTorch's
 * @record writes it), in both shapes:
 *
 *   {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback ...", "timestamp":
 * "17..."}}}
 *   {"message": "text", "timestamp": 17...}
 *
 * The file's content is not trusted: its size and depth are checked before it is parsed. */
#ifndef MUSTER_LAUNCHER_VERDICT_ERROR_FILE_H
#define MUSTER_LAUNCHER_VERDICT_ERROR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/temporary.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure/failure.h"

enum { ERROR_FILE_LIMIT = 1 << 20, ERROR_FILE_DEPTH = 32 };

struct error_report {
    char message[FAILURE_MESSAGE_LIMIT]; /* one line; cut with "..." */
    bool place;                         /* the traceback is a place in a schedule (extraInfo.place is true) */
    char traceback[FAILURE_TAIL_LIMIT]; /* its last lines, if it is longer; newline-separated, none at the end
                                         */
    bool timed;
    int64_t wall_ns;  /* timed: when the exception was written, by the worker's wall clock */
    int64_t grain_ns; /* timed: the resolution: PyTorch writes whole seconds, truncated */
};

/* Texts come without control bytes. MUSTER_E_LIMIT: too large or too deep; MUSTER_E_INVALID: not an error
 * file. */
int error_file_parse(const char *text, size_t length, struct error_report *out, struct muster_error *err);
/* The same file with message.errorCode set, as torchrun's agent passes it to its parent; a message that is
 * a plain text stays as it is. */
int error_file_with_code(const char *text, size_t length, int exit_code, struct buffer *out,
                         struct muster_error *err);
/* A file in the first shape. */
int error_file_format(const char *message, const char *traceback, int64_t wall_ns, int exit_code,
                      struct buffer *out);

/* --- their directory ---
 *
 * Directory for workers' error files if no log directory is configured: each agent has one under TMPDIR, so
 * that the report can show the exception of a @record script all the same. */

/* Whether creating and removing one where error_directory_make does cannot block on a network file system.
 * Never waits. True of a file system on a disk, and of the root's, without which nothing here runs anyway;
 * false of all others and if the kernel does not know at once. */
bool error_directory_is_prompt(void);
/* Makes one, readable by its user only, and returns its path (mem_free): in TMPDIR where it is set, else in
 * /dev/shm if that is a writable memory file system, else in the folder for temporary files. *temporary has a
 * warning where TMPDIR cannot be used. NULL if it cannot be created (a read-only
 * root): then workers get no error file, as under torchrun with a log directory of /dev/null. */
char *error_directory_make(struct temporary_folder *temporary);
/* The file of one worker, in fresh memory. attempt: a round's number, so that none is written twice. */
char *error_directory_file(const char *directory, uint32_t attempt, int local_rank);
/* Removes the folder and our files in it: their text is in the report. */
void error_directory_discard(const char *directory);

#endif
