/* host_memory.h - how much memory this process could still get: the machine's, cut by its control group's. */
#ifndef MUSTER_RUNTIME_DEVICE_HOST_MEMORY_H
#define MUSTER_RUNTIME_DEVICE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes; 0 if nothing could be read. */
int64_t host_memory_available(void);
/* The same if no other process used any. */
int64_t host_memory_total(void);

#endif
