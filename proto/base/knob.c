/* knob.c - see knob.h. */
#include "proto/base/knob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

enum { NUMBER_TEXT = 64 };

static void *value_at(void *options, const struct knob *knob)
{
    return (char *)options + knob->offset;
}

static int range_error(const struct knob *knob, const char *text, const char *where, struct muster_error *err)
{
    const char *unit = knob->unit ? knob->unit : "";
    const char *space = knob->unit ? " " : "";
    if (knob->max >= 9e15)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is below the minimum of %.15g%s%s", where, text,
                         knob->min, space, unit);
    return error_set(err, MUSTER_E_INVALID, "%s: '%s' is outside %.15g to %.15g%s%s", where, text, knob->min,
                     knob->max, space, unit);
}

static bool in_range(const struct knob *knob, double value)
{
    return (knob->min == 0 && knob->max == 0) || (value >= knob->min && value <= knob->max);
}

static int set_choice(const struct knob *knob, void *to, const char *text, const char *where,
                      struct muster_error *err)
{
    scope_buffer list = {0};
    for (int i = 0; knob->choices[i]; i++) {
        if (!strcmp(text, knob->choices[i])) {
            *(int *)to = i;
            return 0;
        }
        buffer_printf(&list, "%s%s", i ? ", " : "", knob->choices[i]);
    }
    return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not one of %s", where, text,
                     list.data ? list.data : "");
}

static size_t list_length(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* --- paths --- */

static int refuse_path_variable(const char *text, struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_INVALID,
        "'%s' has a variable, which is not replaced here: write the path itself, or let the shell "
        "or the template's own program replace it",
        text);
}

static int refuse_path_of_user(const char *text, struct muster_error *err)
{
    const int length = (int)strcspn(text, "/");
    return error_set(
        err, MUSTER_E_INVALID,
        "'%s' begins with %.*s, and the home folders of other users are not looked up: write the "
        "path itself, or ./%s for a file of this name",
        text, length, text, text);
}

int knob_path_with_home(const char *text, const char *home, char **out, struct muster_error *err)
{
    *out = NULL;
    if (text_refuse_scheme(NULL, text, err) < 0)
        return -1;
    if (*text == '$' || strstr(text, "${") || strstr(text, "$(") || strstr(text, "{{"))
        return refuse_path_variable(text, err);
    if (!strcmp(text, "None"))
        return error_set(
            err, MUSTER_E_INVALID,
            "'None' is Python's: leave the key out, or write null (./None for a file of this name)");
    const bool of_home = *text == '~';
    if (of_home && text[1] && text[1] != '/')
        return refuse_path_of_user(text, err);
    if (of_home && (!home || !*home))
        return error_set(err, MUSTER_E_INVALID, "'%s': the home folder is not known, as HOME is not set",
                         text);
    const size_t length = of_home ? strlen(home) : 0;
    const char *rest = text + of_home;
    if (of_home && home[length - 1] == '/' && *rest == '/')
        rest++;
    *out = mem_printf("%s%s", of_home ? home : "", rest);
    return *out ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

int knob_path(const char *text, char **out, struct muster_error *err)
{
    return knob_path_with_home(text, getenv("HOME"), out, err);
}

/* Where the path begins in a text of a list: after a number. */
static size_t number_before(const char *text)
{
    double number;
    const size_t length = strcspn(text, " ");
    scope_free char *first = text[length] ? mem_strndup(text, length) : NULL;
    return first && text_double(first, &number) ? length + strspn(text + length, " ") : 0;
}

/* The text as it is kept; NULL: an error. */
static char *kept_text(const struct knob *knob, const char *text, const char *where, struct muster_error *err)
{
    scope_free char *path = NULL;
    size_t before = 0;
    switch (knob->text) {
    case KNOB_WORDS:
        break;
    case KNOB_FILE:
        if (text_refuse_scheme(where, text, err) < 0)
            return NULL;
        break;
    case KNOB_PATH_OR_ADDRESS:
        if (text_scheme_length(text))
            break;
        /* fall through */
    case KNOB_PATH:
        before = knob->type == KNOB_LIST ? number_before(text) : 0;
        if (knob_path(text + before, &path, err) < 0) {
            (void)error_wrap(err, "%s", where);
            return NULL;
        }
        break;
    }
    char *copy = path ? mem_printf("%.*s%s", (int)before, text, path) : mem_strdup(text);
    if (!copy)
        (void)error_set(err, MUSTER_E_NOMEM, "%s: no memory", where);
    return copy;
}

static int add_text(const struct knob *knob, char ***list, const char *text, const char *where,
                    struct muster_error *err)
{
    size_t count = list_length(*list);
    char *copy = kept_text(knob, text, where, err);
    if (!copy)
        return -1;
    char **longer = mem_realloc(*list, count + 2, sizeof **list);
    if (!longer) {
        mem_free(copy);
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", where);
    }
    longer[count] = copy;
    longer[count + 1] = NULL;
    *list = longer;
    return 0;
}

/* As argparse reads numbers: blanks around them are not theirs. A longer text stays as it is.
 */
static const char *knob_number(const char *text, char room[NUMBER_TEXT])
{
    if (strlen(text) >= NUMBER_TEXT)
        return text;
    memcpy(room, text, strlen(text) + 1);
    text_trim(room);
    return room;
}

static int set_value(const struct knob *knob, void *to, const char *text, const char *where,
                     struct muster_error *err)
{
    char room[NUMBER_TEXT];
    int64_t whole;
    double number;
    switch (knob->type) {
    case KNOB_BOOL:
        if (!text_bool(knob_number(text, room), to))
            return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not true or false", where, text);
        return 0;
    case KNOB_INT:
    case KNOB_BYTES:
        if (!(knob->type == KNOB_BYTES ? text_bytes : text_int64)(knob_number(text, room), &whole))
            return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a whole number%s", where, text,
                             knob->type == KNOB_BYTES ? " of bytes (suffixes K, M, G, T)" : "");
        if (!in_range(knob, (double)whole))
            return range_error(knob, text, where, err);
        *(int64_t *)to = whole;
        return 0;
    case KNOB_DOUBLE:
        if (!text_double(knob_number(text, room), &number))
            return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number", where, text);
        if (!in_range(knob, number))
            return range_error(knob, text, where, err);
        *(double *)to = number;
        return 0;
    case KNOB_CHOICE:
        return set_choice(knob, to, text, where, err);
    case KNOB_TEXT: {
        char *copy = kept_text(knob, text, where, err);
        if (!copy)
            return -1;
        mem_free(*(char **)to);
        *(char **)to = copy;
        return 0;
    }
    case KNOB_LIST:
        return add_text(knob, to, text, where, err);
    }
    return error_set(err, MUSTER_E_STATE, "%s: knob '%s' has no type", where, knob->name);
}

int knob_set(const struct knob_table *table, void *options, uint8_t *sources, const struct knob *knob,
             const char *text, enum knob_source source, const char *where, struct muster_error *err)
{
    if (knob->refused)
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s: %s", where, knob->refused);
    if (set_value(knob, value_at(options, knob), text, where, err) < 0)
        return -1;
    if (sources)
        sources[knob - table->knobs] = (uint8_t)source;
    return 0;
}

int knob_defaults(const struct knob_table *table, void *options, struct muster_error *err)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (!knob->initial || knob->refused)
            continue;
        if (set_value(knob, value_at(options, knob), knob->initial, knob->name, err) < 0)
            return error_wrap(err, "default");
    }
    return 0;
}

void knob_free(const struct knob_table *table, void *options)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (knob->refused)
            continue;
        if (knob->type == KNOB_TEXT) {
            char **text = value_at(options, knob);
            mem_free(*text);
            *text = NULL;
        } else if (knob->type == KNOB_LIST) {
            char ***list = value_at(options, knob);
            for (size_t n = list_length(*list); n > 0; n--)
                mem_free((*list)[n - 1]);
            mem_free(*list);
            *list = NULL;
        }
    }
}

int knob_read_environment(const struct knob_table *table, void *options, uint8_t *sources,
                          const char *(*get)(void *context, const char *name), void *context,
                          struct muster_error *err)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env ? get(context, knob->env) : NULL;
        if (text && knob_set(table, options, sources, knob, text, KNOB_FROM_ENVIRONMENT, knob->env, err) < 0)
            return -1;
    }
    return 0;
}

static char folded(char c)
{
    return c == '_' ? '-' : c;
}

static bool begins_with(const char *name, const char *prefix, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (folded(name[i]) != folded(prefix[i]) || !name[i])
            return false;
    return true;
}

const struct knob *knob_find(const struct knob_table *table, const char *name, size_t length, bool prefixes,
                             bool *ambiguous)
{
    const struct knob *found = NULL;
    int matches = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (!begins_with(knob->name, name, length))
            continue;
        if (strlen(knob->name) == length) {
            if (ambiguous)
                *ambiguous = false;
            return knob;
        }
        found = knob;
        matches++;
    }
    if (ambiguous)
        *ambiguous = prefixes && matches > 1;
    return prefixes && matches == 1 ? found : NULL;
}

const struct knob *knob_find_letter(const struct knob_table *table, char letter)
{
    for (size_t i = 0; i < table->count; i++)
        if (letter && table->knobs[i].letter == letter)
            return &table->knobs[i];
    return NULL;
}

/* Where a table's names have sections ("training.steps"), the section is no part of the likeness: it would
 * make all names of a section near to each other. */
const char *knob_nearest(const struct knob_table *table, const char *name)
{
    const char *dot = strchr(name, '.');
    const size_t section = dot ? (size_t)(dot - name) + 1 : 0;
    size_t count = 0;
    scope_free const char **names = mem_calloc(table->count, sizeof *names);
    if (!names)
        return NULL;
    for (size_t i = 0; i < table->count; i++)
        if (!strncmp(table->knobs[i].name, name, section))
            names[count++] = table->knobs[i].name + section;
    if (!count) { /* of no section */
        for (; count < table->count; count++)
            names[count] = table->knobs[count].name;
        return text_nearest(name, names, count);
    }
    const char *near = text_nearest(name + section, names, count);
    return near ? near - section : NULL;
}
