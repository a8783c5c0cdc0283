/* pod_table.h - pure: the outcome of the pods and the job, as a table. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_POD_TABLE_H
#define MUSTER_LAUNCHER_LOCAL_RUN_POD_TABLE_H

#include "launcher/local/run/lifecycle.h"
#include "proto/base/buffer.h"

/* One line a pod: its end, last exit code, restarts in place, how often it was recreated, and the time
 * from its first start to its last end (now where it has not ended); then the job's condition. */
int pod_table_format(const struct lifecycle *life, struct instant now, struct buffer *out);

#endif
