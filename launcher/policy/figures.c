/* figures.c - see figures.h. */
#include "launcher/policy/figures.h"

#include <string.h>

#include "proto/base/text.h"

static const char mark[] = "figures/", version[] = "figures/1 ";

const struct figure_row *figure_row(enum figure figure)
{
    static const struct figure_row rows[] = {
#define FIGURE_ROW(symbol, name, metric, factor, help) [symbol] = {name, metric, help, factor},
        FIGURES(FIGURE_ROW)
#undef FIGURE_ROW
    };
    return &rows[figure];
}

bool figures_is_line(const char *line, size_t length)
{
    return length >= sizeof mark - 1 && !memcmp(line, mark, sizeof mark - 1);
}

/* The figure of a name; FIGURE_COUNT: none. */
static enum figure figure_named(const char *name, size_t length)
{
    int i = 0;
    while (i < FIGURE_COUNT && (strlen(figure_row((enum figure)i)->name) != length ||
                                memcmp(figure_row((enum figure)i)->name, name, length) != 0))
        i++;
    return (enum figure)i;
}

/* "name=value"; false: it is not. */
static bool take_pair(struct worker_figures *figures, const char *pair, size_t length)
{
    char text[40];
    double value;
    const char *equals = memchr(pair, '=', length);
    const size_t name = equals ? (size_t)(equals - pair) : 0, digits = length - name - 1;
    if (!name || !digits || digits >= sizeof text)
        return false;
    memcpy(text, equals + 1, digits);
    text[digits] = '\0';
    if (!text_double(text, &value))
        return false;
    const enum figure figure = figure_named(pair, name);
    if (figure == FIGURE_COUNT)
        return true; /* of a later version of the worker */
    figures->has[figure] = true;
    figures->value[figure] = value;
    return true;
}

void figures_take(struct worker_figures *figures, const char *line, size_t length)
{
    struct worker_figures found = {.there = true};
    const char *at = line + sizeof version - 1, *end = line + length;
    if (length < sizeof version - 1 || memcmp(line, version, sizeof version - 1) != 0)
        return;
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const char *stop = blank ? blank : end;
        if (!take_pair(&found, at, (size_t)(stop - at)))
            return;
        at = blank ? blank + 1 : end;
    }
    *figures = found;
}
