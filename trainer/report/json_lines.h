/* json_lines.h - an entry as one line of JSON. Pure. */
#ifndef MUSTER_TRAINER_REPORT_JSON_LINES_H
#define MUSTER_TRAINER_REPORT_JSON_LINES_H

#include "proto/base/buffer.h"
#include "trainer/report/entry.h"

enum { JSON_LINES_SCHEMA = 1 };
#define JSON_LINES_BEGIN "{\"schema\": " /* every line */

/* Appends {"schema": 1, "kind": "step", "time": 1700000000.123, "step": 12, ...} and a newline. wall_ns:
 * since 1970. -1: no memory. */
int json_lines_add(const struct entry *entry, int64_t wall_ns, struct buffer *out);

#endif
