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

#endif
