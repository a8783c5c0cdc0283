/* assign.c - see assign.h. */
#include "trainer/formats/assign.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/config/train_effects.h"
#include "trainer/formats/scalar.h"

static const struct knob *knob_of(const char *key)
{
    return knob_find(train_config_table(), key, strlen(key), false, NULL);
}

static size_t index_of(const struct knob *knob)
{
    return (size_t)(knob - train_config_table()->knobs);
}

int assign_no_memory(struct assign *a)
{
    return error_set(a->err, MUSTER_E_NOMEM, "no memory to read the configuration");
}

bool assign_overridden(const struct assign *a, const char *key)
{
    const struct knob *knob = knob_of(key);
    for (int i = 0; i < a->override_count; i++) {
        const size_t length = strcspn(a->overrides[i], "=");
        if (knob && knob_find(train_config_table(), a->overrides[i], length, false, NULL) == knob)
            return true;
    }
    return false;
}

enum knob_source assign_source(const struct assign *a, const char *key)
{
    return (enum knob_source)a->config->sources[index_of(knob_of(key))];
}

const char *assign_place(const struct assign *a, const char *key)
{
    const char *place = a->places[index_of(knob_of(key))];
    return place ? place : "";
}

int assign_keep(struct assign *a, enum assign_number_kind kind, double value, const char *place)
{
    char *copy = mem_strdup(place);
    if (!copy)
        return assign_no_memory(a);
    mem_free(a->numbers[kind].place);
    a->numbers[kind] = (struct assign_number){value, copy};
    return 0;
}

int assign_note(struct assign *a, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* a long line is cut */
    va_end(args);
    return buffer_printf(a->notes, "%s\n", line) < 0 ? assign_no_memory(a) : 0;
}

/* Length of the file in a place, up to the first colon. */
static size_t file_length(const char *place)
{
    return strcspn(place, ":");
}

static bool other_file(const char *before, const char *now)
{
    return *before != '-' && *now != '-' &&
           (file_length(before) != file_length(now) || strncmp(before, now, file_length(now)) != 0);
}

char *assign_whole_number(const struct knob *knob, const char *text)
{
    int64_t whole;
    double number;
    if ((knob->type != KNOB_INT && knob->type != KNOB_BYTES) || text_int64(text, &whole) ||
        !text_double(text, &number) || number != floor(number) || fabs(number) > 9e15)
        return NULL;
    return mem_printf("%.0f", number);
}

static int keep_place(struct assign *a, const struct knob *knob, const char *place)
{
    char *copy = mem_strdup(place);
    if (!copy)
        return assign_no_memory(a);
    mem_free(a->places[index_of(knob)]);
    a->places[index_of(knob)] = copy;
    return 0;
}

static int set_value(struct assign *a, const struct knob *knob, const char *text, enum knob_source source,
                     const char *where, const char *place)
{
    scope_free char *whole = assign_whole_number(knob, text);
    if (knob_set(train_config_table(), a->config, a->config->sources, knob, whole ? whole : text, source,
                 where, a->err) < 0)
        return -1;
    return keep_place(a, knob, place);
}

static int refuse_override(const struct assign *a, const char *key, struct muster_error *err)
{
    char text[MEANT_SIZE];
    const char *nearest = a->meant ? a->meant(key, text) : knob_nearest(train_config_table(), key);
    if (nearest)
        return error_set(err, MUSTER_E_INVALID, "--set: unknown key '%s'; did you mean '%s'?", key, nearest);
    return error_set(err, MUSTER_E_INVALID, "--set: unknown key '%s'; muster-train --help lists every key",
                     key);
}

/* Whether no earlier --set gives this setting. */
static bool first_override(const struct assign *a, const char *text, const struct knob *knob)
{
    for (int i = 0; i < a->override_count && a->overrides[i] != text; i++)
        if (knob_find(train_config_table(), a->overrides[i], strcspn(a->overrides[i], "="), false, NULL) ==
            knob)
            return false;
    return true;
}

static int override_items(struct assign *a, const struct knob *knob, const char *value, const char *where)
{
    struct tree tree;
    if (tree_parse(where, value, strlen(value), &tree, a->err) < 0)
        return -1;
    int result = 0;
    for (size_t i = 0; !result && i < tree.documents[0]->count; i++) {
        char number[SCALAR_SIZE];
        const char *text = scalar_text(tree.documents[0]->items[i], knob, number, where, a->err);
        result = text ? set_value(a, knob, text, KNOB_FROM_FLAG, where, "--set") : -1;
    }
    tree_free(&tree);
    return result;
}

static int override_list(struct assign *a, const struct knob *knob, const char *text, const char *value,
                         const char *where)
{
    const bool empty = !*value || (scalar_is_null(value) && *value != '~'), whole = scalar_is_list(value);
    if ((empty || whole || first_override(a, text, knob)) && assign_reset(a, knob->name) < 0)
        return -1;
    if (empty)
        return 0;
    return whole ? override_items(a, knob, value, where)
                 : set_value(a, knob, value, KNOB_FROM_FLAG, where, "--set");
}

int assign_override_text(struct assign *a, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return error_set(a->err, MUSTER_E_INVALID, "--set %s: write key=value, e.g. --set training.steps=100",
                         text);
    const struct knob *knob = knob_find(train_config_table(), text, (size_t)(equals - text), false, NULL);
    scope_free char *key = mem_strndup(text, (size_t)(equals - text));
    scope_free char *where = key ? mem_printf("--set %s", key) : NULL;
    if (!where)
        return assign_no_memory(a);
    if (!knob)
        return refuse_override(a, key, a->err);
    if (knob->type == KNOB_LIST)
        return override_list(a, knob, text, equals + 1, where);
    const bool text_of_its_own = knob->type == KNOB_TEXT && knob->text == KNOB_WORDS;
    /* null: not set; ~ is a folder here */
    if (scalar_is_null(equals + 1) && equals[1] != '~' && !text_of_its_own)
        return assign_reset(a, knob->name);
    return set_value(a, knob, equals + 1, KNOB_FROM_FLAG, where, "--set");
}

int assign_override(struct assign *a, const char *key)
{
    for (int i = 0; i < a->override_count; i++) {
        const size_t length = strcspn(a->overrides[i], "=");
        if (knob_find(train_config_table(), a->overrides[i], length, false, NULL) == knob_of(key))
            return assign_override_text(a, a->overrides[i]);
    }
    return 0;
}

int assign_set(struct assign *a, const char *key, const char *text, enum knob_source source,
               const char *where, const char *place)
{
    const struct knob *knob = knob_of(key);
    if (!knob)
        return error_set(a->err, MUSTER_E_STATE, "%s: there is no setting '%s'", where, key);
    scope_buffer before = {0}, after = {0};
    scope_free char *earlier = mem_strdup(assign_place(a, key));
    const bool again = earlier && *earlier && other_file(earlier, place) && knob->type != KNOB_LIST;
    if (!earlier || (again && knob_format(knob, a->config, &before) < 0))
        return assign_no_memory(a);
    if (set_value(a, knob, text, source, where, place) < 0)
        return -1;
    if (!again)
        return 0;
    if (knob_format(knob, a->config, &after) < 0)
        return assign_no_memory(a);
    if (!before.data || !after.data || !strcmp(before.data, after.data))
        return 0;
    return assign_note(a, "%s: %s is %s, in place of %s from %s", place, key, after.data, before.data,
                       earlier);
}

int assign_reset(struct assign *a, const char *key)
{
    const struct knob *knob = knob_of(key);
    mem_free(a->places[index_of(knob)]);
    a->places[index_of(knob)] = NULL;
    return train_config_reset(a->config, knob, a->err);
}

int assign_list_anew(struct assign *a, const char *key, const char *place)
{
    const char *earlier = assign_place(a, key);
    scope_buffer before = {0};
    if (*earlier && other_file(earlier, place)) {
        if (knob_format(knob_of(key), a->config, &before) < 0)
            return assign_no_memory(a);
        if (before.data && assign_note(a, "%s: %s is given anew, in place of %s from %s", place, key,
                                       before.data, earlier) < 0)
            return -1;
    }
    return assign_reset(a, key);
}

int assign_rule(struct assign *a, const char *key, const char *text, const char *place)
{
    return set_value(a, knob_of(key), text, KNOB_FROM_RULE, place, place);
}

/* A later value of a file replaces an earlier value; of several defaults the first counts. */
static struct assign_weak *weak_slot(struct assign *a, enum assign_rank rank, const struct knob *knob)
{
    for (size_t i = 0; rank == ASSIGN_VALUE && i < a->weak_count; i++)
        if (a->weak[i].knob == knob && a->weak[i].rank == rank)
            return &a->weak[i];
    return a->weak_count == ASSIGN_WEAK_LIMIT ? NULL : &a->weak[a->weak_count++];
}

int assign_weakly(struct assign *a, enum assign_rank rank, const char *key, const char *text,
                  const char *place)
{
    const struct knob *knob = knob_of(key);
    if (!knob)
        return error_set(a->err, MUSTER_E_STATE, "%s: there is no setting '%s'", place, key);
    struct assign_weak *weak = weak_slot(a, rank, knob);
    if (!weak)
        return error_set(a->err, MUSTER_E_LIMIT, "%s: more than %d values in these files", place,
                         ASSIGN_WEAK_LIMIT);
    mem_free(weak->text);
    mem_free(weak->place);
    *weak = (struct assign_weak){knob, rank, mem_strdup(text), mem_strdup(place)};
    return weak->text && weak->place ? 0 : assign_no_memory(a);
}

int assign_weak_list(struct assign *a, enum assign_rank rank, const struct assign_pair *pairs, size_t count,
                     const char *place)
{
    for (size_t i = 0; i < count; i++)
        if (assign_weakly(a, rank, pairs[i].key, pairs[i].text, place) < 0)
            return -1;
    return 0;
}

static void forget_weak(struct assign *a)
{
    for (size_t i = 0; i < a->weak_count; i++) {
        mem_free(a->weak[i].text);
        mem_free(a->weak[i].place);
        a->weak[i] = (struct assign_weak){0};
    }
    a->weak_count = 0;
}

static int take_one(struct assign *a, const struct assign_weak *weak)
{
    if (a->config->sources[index_of(weak->knob)] != KNOB_FROM_DEFAULT ||
        !train_config_has_effect(a->config, weak->knob))
        return 0;
    return set_value(a, weak->knob, weak->text, KNOB_FROM_RULE, weak->place, weak->place);
}

int assign_take_weak(struct assign *a)
{
    int result = 0;
    for (int rank = 0; rank < ASSIGN_RANKS; rank++)
        for (size_t i = 0; !result && i < a->weak_count; i++)
            if (a->weak[i].rank == (enum assign_rank)rank)
                result = take_one(a, &a->weak[i]);
    forget_weak(a);
    return result;
}

void assign_free(struct assign *a)
{
    forget_weak(a);
    for (int i = 0; i < ASSIGN_NUMBERS; i++) {
        mem_free(a->numbers[i].place);
        a->numbers[i].place = NULL;
    }
}
