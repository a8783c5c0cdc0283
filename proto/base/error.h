/* error.h - fills, wraps and prints `struct muster_error`. */
#ifndef MUSTER_PROTO_BASE_ERROR_H
#define MUSTER_PROTO_BASE_ERROR_H

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills err (may be NULL) and returns -1, so that failing is one line: return error_set(err,
 * MUSTER_E_INVALID, ...). A text that does not fit is cut and ends in "...". Control
 * characters of its arguments become "?", but for tabs and ends of lines. errno is kept. */
int error_set(struct muster_error *err, enum muster_error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As error_set with ": <strerror(errno)>" appended, and code MUSTER_E_NOMEM for ENOMEM, MUSTER_E_NOT_FOUND
 * for ENOENT and ENOTDIR, MUSTER_E_INVALID for a path that no file can have (EISDIR, ELOOP, ENAMETOOLONG),
 * MUSTER_E_FULL for ENOSPC and EDQUOT, else MUSTER_E_IO: the system could not do it now. */
int error_errno(struct muster_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<prefix>: " before the text; the code stays. Returns -1. */
int error_wrap(struct muster_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Clears err (may be NULL). */
void error_clear(struct muster_error *err);

/* The printable name of a code ("timeout"); "unknown" for anything else. Never NULL. */
const char *error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
