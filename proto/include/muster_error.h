/* muster_error.h - the one error shape of muster, public and internal.
 *
 * Every function that can fail takes a `struct muster_error *` as its last parameter (NULL is allowed: the
 * caller does not want the text) and returns 0 or a non-NULL pointer on success, -1 or NULL on failure. On
 * failure nothing else has changed: no output was written and ownership stays where it was, unless the
 * function's own comment states otherwise. */
#ifndef MUSTER_ERROR_H
#define MUSTER_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Long enough for one line with the value, the limit and the remedy, and two prefixes from callers. */
#define MUSTER_ERROR_TEXT 480

struct muster_error {
    int code;                     /* a value of enum muster_error_code; 0: no error */
    char text[MUSTER_ERROR_TEXT]; /* one line, no newline, NUL-terminated, cut with "..." where too long */
};

/* code, printable name, meaning */
#define MUSTER_ERROR_CODES(X)                                                                                \
    X(MUSTER_OK, "ok", "no error")                                                                           \
    X(MUSTER_E_INVALID, "invalid", "an argument, flag or configuration value is wrong")                      \
    X(MUSTER_E_NOMEM, "no-memory", "an allocation failed or would exceed a limit")                           \
    X(MUSTER_E_IO, "io", "the operating system refused a read, write, open or map")                          \
    X(MUSTER_E_TIMEOUT, "timeout", "a deadline passed")                                                      \
    X(MUSTER_E_PEER, "peer", "another process or rank has ended or violated the protocol")                   \
    X(MUSTER_E_PROTOCOL, "protocol", "bytes that do not follow the wire format")                             \
    X(MUSTER_E_NOT_FOUND, "not-found", "a name, file or key does not exist")                                 \
    X(MUSTER_E_UNSUPPORTED, "unsupported", "known, but not supported by this build or version")              \
    X(MUSTER_E_LIMIT, "limit", "a documented bound was exceeded")                                            \
    X(MUSTER_E_CANCELLED, "cancelled", "stopped by request")                                                 \
    X(MUSTER_E_REFUSED, "refused", "refused by the other side, with its reason")                             \
    X(MUSTER_E_STATE, "state", "called in a state that does not allow it")                                   \
    X(MUSTER_E_BUSY, "busy", "already in use: a port, a file, a device")                                     \
    X(MUSTER_E_FULL, "full", "no room is left on a disk, or in a quota")

enum muster_error_code {
#define MUSTER_ERROR_ENUM(code, name, meaning) code,
    MUSTER_ERROR_CODES(MUSTER_ERROR_ENUM)
#undef MUSTER_ERROR_ENUM
};

#ifdef __cplusplus
}
#endif
#endif
