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

static bool is_own_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
              (name[i] >= '0' && name[i] <= '9') || (name[i] && strchr("_-./", name[i]))))
            return false;
    return length > 0 && length < FIGURES_NAME;
}

void figures_set(struct worker_figures *figures, const char *name, size_t length, double value)
{
    const enum figure figure = figure_named(name, length);
    figures->there = true;
    if (figure < FIGURE_COUNT) {
        figures->has[figure] = true;
        figures->value[figure] = value;
    } else if (figures->own_count < FIGURES_OWN && is_own_name(name, length)) {
        struct own_figure *own = &figures->own[figures->own_count++];
        memcpy(own->name, name, length);
        own->name[length] = '\0';
        own->value = value;
    }
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
    figures_set(figures, pair, name, value);
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
