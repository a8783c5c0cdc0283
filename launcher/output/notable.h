/* notable.h - pure: the lines of a stream in which NCCL warns, for the job's page, whatever else goes by. */
#ifndef MUSTER_LAUNCHER_OUTPUT_NOTABLE_H
#define MUSTER_LAUNCHER_OUTPUT_NOTABLE_H

#include <stdbool.h>
#include <stddef.h>

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
