/* heartbeat.h - lines to the launcher through the worker's pipe; the protocol is in
 * launcher/docs/heartbeat.md. */
#ifndef MUSTER_RUNTIME_WORLD_HEARTBEAT_H
#define MUSTER_RUNTIME_WORLD_HEARTBEAT_H

#include "proto/include/muster_error.h"

/* One line with its newline, of less than PIPE_BUF. Never blocks: a line that the launcher has no room for is
 * dropped. Outside of muster run it does nothing. */
int heartbeat_write(const char *line, struct muster_error *err);

#endif
