/* log_filter.h - pure: which lines are written a second time (--duplicate-stdout-filters and its like), and
 * whose lines are on the console (--local-ranks-filter). */
#ifndef MUSTER_LAUNCHER_OUTPUT_LOG_FILTER_H
#define MUSTER_LAUNCHER_OUTPUT_LOG_FILTER_H

#include <stdbool.h>
#include <stddef.h>

struct log_filter {
    char **words; /* NULL-terminated; NULL: none */
};

/* "a,b" is two words, ",," a comma inside of a word; empty words are left out. -1: no memory. */
int log_filter_parse(const char *text, struct log_filter *filter);
/* Whether the line has one of the words in it. */
bool log_filter_matches(const struct log_filter *filter, const char *line, size_t length);
/* Accepts one that was never filled. */
void log_filter_free(struct log_filter *filter);

/* Whether local_rank is in a list such as "0,2,13"; NULL and "" are all. -1: the list is malformed. */
int log_filter_shows(const char *ranks, int local_rank);

#endif
