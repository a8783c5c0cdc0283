/* log_filter.h - pure: lines that are written a second time (--duplicate-stdout-filters and the like), and
 * ranks shown on the console (--local-ranks-filter). */
#ifndef MUSTER_LAUNCHER_OUTPUT_LOG_FILTER_H
#define MUSTER_LAUNCHER_OUTPUT_LOG_FILTER_H

#include <stdbool.h>
#include <stddef.h>

struct log_filter {
    char **words; /* NULL-terminated; NULL: none */
};

/* "a,b" is two words, ",," a comma inside of a word; empty words are left out. -1: no memory. */
int log_filter_parse(const char *text, struct log_filter *filter);
/* Whether the line contains any of the words. */
bool log_filter_matches(const struct log_filter *filter, const char *line, size_t length);
/* Accepts a zeroed filter. */
void log_filter_free(struct log_filter *filter);

/* Whether local_rank is in a list such as "0,2,13"; NULL and "" are all. -1: the list is malformed. */
int log_filter_shows(const char *ranks, int local_rank);

#endif
