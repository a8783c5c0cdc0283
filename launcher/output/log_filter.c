/* log_filter.c - see log_filter.h. */
#include "launcher/output/log_filter.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"

/* The word at *text, which moves past it and its comma. NULL: no memory. */
static char *next_word(const char **text)
{
    struct buffer word = {0};
    const char *at = *text;
    for (; *at; at++) {
        if (at[0] == ',' && at[1] != ',')
            break;
        at += at[0] == ',';
        buffer_append(&word, at, 1);
    }
    *text = *at ? at + 1 : at;
    char *taken = buffer_take(&word);
    buffer_free(&word);
    return taken;
}

int log_filter_parse(const char *text, struct log_filter *filter)
{
    size_t limit = text ? strlen(text) / 2 + 2 : 1, count = 0; /* a word needs a byte and a comma */
    *filter = (struct log_filter){0};
    if (!text || !*text)
        return 0;
    filter->words = mem_calloc(limit, sizeof *filter->words);
    while (filter->words && *text) {
        char *word = next_word(&text);
        if (!word) {
            log_filter_free(filter);
            return -1;
        }
        if (*word)
            filter->words[count++] = word;
        else
            mem_free(word);
    }
    return filter->words ? 0 : -1;
}

bool log_filter_matches(const struct log_filter *filter, const char *line, size_t length)
{
    for (char **word = filter->words; word && *word; word++)
        if (memmem(line, length, *word, strlen(*word)))
            return true;
    return false;
}

void log_filter_free(struct log_filter *filter)
{
    for (char **word = filter->words; word && *word; word++)
        mem_free(*word);
    mem_free(filter->words);
    filter->words = NULL;
}

int log_filter_shows(const char *ranks, int local_rank)
{
    bool shows = false;
    if (!ranks || !*ranks)
        return 1;
    for (const char *at = ranks;; at++) {
        char *end;
        if (*at < '0' || *at > '9')
            return -1;
        shows |= strtol(at, &end, 10) == local_rank; /* overflow gives LONG_MAX, which is no local rank */
        at = end;
        if (!*at)
            return shows;
        if (*at != ',')
            return -1;
    }
}
