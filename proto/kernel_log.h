/* kernel_log.h - the records of /dev/kmsg, of which a read gives one. The kernel writes a new record over the
 * oldest one, also where that was not read yet. */
#ifndef MUSTER_PROTO_KERNEL_LOG_H
#define MUSTER_PROTO_KERNEL_LOG_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls take with each record that there is, `limit` reads at most. fd does not block. Whether records were
 * lost: overwritten before they were read, or longer than any that the kernel writes today. */
bool kernel_log_read(int fd, int limit, void (*take)(void *context, char *record), void *context);

#ifdef __cplusplus
}
#endif
#endif
