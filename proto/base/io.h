/* io.h - the thin edge to files and descriptors: short writes, EINTR and sizes are handled here once. */
#ifndef MUSTER_PROTO_BASE_IO_H
#define MUSTER_PROTO_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes all length bytes to a blocking descriptor. what names it in the error ("log file /x/y"). */
int io_write_all(int fd, const void *data, size_t length, const char *what, struct muster_error *err);
/* Reads exactly length bytes; an early end of file is an error. */
int io_read_all(int fd, void *data, size_t length, const char *what, struct muster_error *err);
/* The whole of a regular file or of /proc and /sys text, at most limit bytes (a larger one is
 * MUSTER_E_LIMIT). */
int io_read_file(const char *path, size_t limit, struct buffer *out, struct muster_error *err);
/* Makes a file that is new: an older file, the rest of a killed process or a link that another user
 * has planted, is removed and never opened or followed. access: O_WRONLY or O_RDWR, and further flags. For
 * names that no other process uses now. -1 with errno. */
int io_create_new(const char *path, int access, mode_t mode);
/* Makes a new file next to path under a name that is not known before, PATH.new.NUMBER; *name (mem_free)
 * gets it. It is renamed to path in the end, so that a path of a device, pipe or socket is refused. */
int io_create_beside(const char *path, mode_t mode, char **name, struct muster_error *err);
/* Whether both paths lead to one file or folder that is there. */
bool io_same_file(const char *a, const char *b);
/* 1: there is a file or folder of this path; 0: there is none; -1: that cannot be found out, for example
 * because a folder above it cannot be entered. */
int io_exists(const char *path, struct muster_error *err);
/* The same for a folder. */
int io_is_folder(const char *path, struct muster_error *err);
/* Writes a temporary file (io_create_beside), syncs it and renames it over path: after a crash there is the
 * old or the new one, and the temporary one may be left. */
int io_write_file_atomic(const char *path, const void *data, size_t length, mode_t mode,
                         struct muster_error *err);
/* Opens a file of lines to append to it, makes it where it is not there, and cuts off the end that a process
 * that was killed while it wrote has left: a last line without its end, where it begins as all of them do,
 * with `begins`. No other process writes to it now. -1 with errno, as open() has it. */
int io_open_lines(const char *path, const char *begins);
/* Removes the files of a folder whose names match. */
int io_remove_matching(const char *folder, bool (*matches)(const char *name), struct muster_error *err);
/* Removes the temporary files of io_write_file_atomic from folder: for a folder that no other process writes
 * now. */
int io_remove_unfinished(const char *folder, struct muster_error *err);
/* mkdir -p. */
int io_make_directories(const char *path, mode_t mode, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
