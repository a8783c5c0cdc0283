/* saved.c - see saved.h. */
#include "launcher/policy/saved.h"

#include <string.h>

static const char mark[] = "checkpoint/", saved_mark[] = "checkpoint/1 saved ",
                  failed_mark[] = "checkpoint/1 failed ";

bool saved_is_line(const char *line, size_t length)
{
    return length >= sizeof mark - 1 && !memcmp(line, mark, sizeof mark - 1);
}

static bool begins(const char *line, size_t length, const char *with, size_t *at)
{
    *at = strlen(with);
    return length > *at && !memcmp(line, with, *at);
}

void saved_take(struct worker_saved *saved, const char *line, size_t length)
{
    enum { DIGITS = 18 };
    struct worker_saved found = {.there = true};
    size_t at, first, used = 0;
    found.good = begins(line, length, saved_mark, &at);
    if (!found.good && !begins(line, length, failed_mark, &at))
        return;
    for (first = at; at < length && at - first < DIGITS && line[at] >= '0' && line[at] <= '9'; at++)
        found.step = found.step * 10 + (line[at] - '0');
    if (at == first || at == length || line[at] != ' ')
        return;
    for (at++; at < length && used < sizeof found.text - 1; at++)
        found.text[used++] = (char)((unsigned char)line[at] < ' ' || line[at] == 127 ? ' ' : line[at]);
    if (used)
        *saved = found;
}
