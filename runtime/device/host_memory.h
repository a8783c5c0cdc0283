/* host_memory.h - how much memory this process could still get: the machine's, cut by its control group's. */
#ifndef MUSTER_RUNTIME_DEVICE_HOST_MEMORY_H
#define MUSTER_RUNTIME_DEVICE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes; 0 if nothing could be read. */
int64_t host_memory_available(void);

/* Pure. Bytes of the row `name` ("MemAvailable") of text in the form of /proc/meminfo ("name: 12 kB") or of
 * memory.stat ("name 12", bytes); -1 where it is not there. */
int64_t host_memory_row(const char *text, const char *name);
/* Pure. What a control group leaves: limit - (used - inactive_file), at least 0; -1 where limit is no number
 * ("max") or so large that it means none. Texts are the files' contents; stat may be NULL. */
int64_t host_memory_cgroup(const char *limit, const char *used, const char *stat);

#endif
