/* knob_args.c - see knob_args.h. */
#include "proto/base/knob_args.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

struct line {
    const struct knob_table *table;
    void *options;
    uint8_t *sources;
    int argc, at; /* at: the next argument */
    char *const *argv;
};

static int unknown_flag(const struct knob_table *table, const char *token, size_t name_length,
                        struct muster_error *err)
{
    scope_free char *name = mem_strndup(token, name_length);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    const char *hint = knob_nearest(table, name + strspn(name, "-"));
    if (hint)
        return error_set(err, MUSTER_E_INVALID, "unknown flag %s; did you mean --%s?", name, hint);
    return error_set(err, MUSTER_E_INVALID, "unknown flag %s; --help lists all flags", name);
}

static int ambiguous_flag(const struct knob_table *table, const char *name, size_t length,
                          struct muster_error *err)
{
    scope_buffer list = {0};
    for (size_t i = 0; i < table->count; i++) {
        struct knob_table one = {&table->knobs[i], 1};
        if (knob_find(&one, name, length, true, NULL))
            buffer_printf(&list, "%s--%s", list.length ? ", " : "", table->knobs[i].name);
    }
    return error_set(err, MUSTER_E_INVALID, "--%.*s could be any of %s", (int)length, name,
                     list.failed ? "" : list.data);
}

/* Whether the argument looks like a flag and not like a value: begins with a dash and is not a negative
 * number. */
static bool looks_like_flag(const char *text)
{
    return text[0] == '-' && text[1] && !(text[1] >= '0' && text[1] <= '9');
}

/* Sets the row from its attached value (NULL: none) or from the next argument. */
static int take_value(struct line *line, const struct knob *knob, const char *shown, const char *attached,
                      struct muster_error *err)
{
    const char *value = attached;
    if (knob->type == KNOB_BOOL && !knob->refused) {
        if (attached)
            return error_set(err, MUSTER_E_INVALID, "%s takes no value, but '%s' was given", shown, attached);
        value = "1";
    } else if (!value && knob->implied) {
        value = knob->implied;
    } else if (!value && !knob->refused) {
        if (line->at >= line->argc || looks_like_flag(line->argv[line->at]))
            return error_set(err, MUSTER_E_INVALID, "%s needs a value", shown);
        value = line->argv[line->at++];
    }
    return knob_set(line->table, line->options, line->sources, knob, value ? value : "", KNOB_FROM_FLAG,
                    shown, err);
}

static int take_long(struct line *line, const char *token, struct muster_error *err)
{
    const char *name = token + 2;
    size_t length = strcspn(name, "=");
    bool ambiguous = false;
    const struct knob *knob = length ? knob_find(line->table, name, length, true, &ambiguous) : NULL;
    if (ambiguous)
        return ambiguous_flag(line->table, name, length, err);
    if (!knob)
        return unknown_flag(line->table, token, length + 2, err);
    scope_free char *shown = mem_printf("--%s", knob->name);
    if (!shown)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    return take_value(line, knob, shown, name[length] ? name + length + 1 : NULL, err);
}

static int take_short(struct line *line, const char *token, struct muster_error *err)
{
    const struct knob *knob = knob_find_letter(line->table, token[1]);
    if (!knob)
        return unknown_flag(line->table, token, strcspn(token, "="), err);
    const char shown[] = {'-', token[1], 0};
    const char *attached = token[2] ? token + 2 + (token[2] == '=') : NULL;
    return take_value(line, knob, shown, attached, err);
}

int knob_parse_flags(const struct knob_table *table, void *options, uint8_t *sources, int argc,
                     char *const argv[], int *at, const bool *stop, struct muster_error *err)
{
    struct line line = {table, options, sources, argc, *at, argv};
    int result = 0;
    while (!result && line.at < argc && !(stop && *stop)) {
        const char *token = argv[line.at];
        if (token[0] != '-' || !token[1])
            break;
        line.at++;
        if (!strcmp(token, "--"))
            break;
        result = (token[1] == '-' ? take_long : take_short)(&line, token, err);
    }
    *at = line.at;
    return result;
}
