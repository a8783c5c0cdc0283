/* tail.h - pure: the last lines of a stream, kept in a small ring and cleaned up for a report; its notable
 * lines. */
#ifndef MUSTER_LAUNCHER_OUTPUT_TAIL_H
#define MUSTER_LAUNCHER_OUTPUT_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAIL_BYTES = 4096, TAIL_LINES = 20 };

struct tail {
    uint64_t total; /* bytes in all; a zeroed struct is empty */
    char ring[TAIL_BYTES];
};

void tail_add(struct tail *t, const char *data, size_t length);
/* The last lines (at most TAIL_LINES) as text, newline-separated, NUL-terminated: of a line that rewrote
 * itself with '\r' only the last state, without escape sequences, other control bytes as '?'. An
 * incomplete first line is left out unless it is the only one. */
void tail_text(const struct tail *t, char *out, size_t size);
/* The same for the last bytes of a file; cut: they may begin in the middle of a line. */
void tail_format(const char *bytes, size_t length, bool cut, char *out, size_t size);

/* --- notable lines ---
 *
 * The lines of a stream in which NCCL warns, for the job's page, whatever else goes by (pure). */

enum { NOTABLE_LINE = 512, NOTABLE_TEXT = 224, NOTABLE_KEPT = 4 };

/* A zeroed one is empty. */
struct notable {
    char line[NOTABLE_LINE]; /* the incomplete one, cut */
    size_t length;
    int count;
    char kept[NOTABLE_KEPT][NOTABLE_TEXT]; /* not taken yet; beyond it new ones are dropped */
};

void notable_add(struct notable *n, const char *data, size_t length);
/* The oldest that was not taken yet, from "NCCL WARN" on, of at least NOTABLE_TEXT bytes; false: none. */
bool notable_take(struct notable *n, char *out);

#endif
