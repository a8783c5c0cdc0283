/* decide_print.c - decisions as a table and as JSON. */
#include <stdio.h>
#include <string.h>

#include "runtime/nccl/decide/decide.h"

static int widest(const struct decision_list *list, int least, int most)
{
    int width = least;
    for (int i = 0; i < list->count; i++) {
        int needed =
            (int)(strlen(list->items[i].name) + strlen(list->items[i].value)) + (*list->items[i].value != 0);
        if (needed > width && needed <= most)
            width = needed;
    }
    return width;
}

/* The reason, broken at blanks into lines of at most width, all but the first indented. */
static void wrap(const char *text, int width, int indent, struct buffer *out)
{
    while (strlen(text) > (size_t)width) {
        int cut = width;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = width;
        buffer_printf(out, "%.*s\n%*s", cut, text, indent, "");
        text += cut + (text[cut] == ' ');
    }
    buffer_printf(out, "%s\n", text);
}

int decision_print(const struct decision_list *list, int columns, struct buffer *out)
{
    int width = widest(list, 24, columns > 100 ? columns / 2 : 48), indent = width + 12;
    int room = columns - indent > 30 ? columns - indent : 30;
    for (int i = 0; i < list->count; i++) {
        const struct decision *decision = &list->items[i];
        char setting[sizeof decision->name + sizeof decision->value + 1];
        int length = snprintf(setting, sizeof setting, "%s%s%s", decision->name, *decision->value ? "=" : "",
                              decision->value);
        buffer_printf(out, "%-10s%-*s  ", decision_kind_name(decision->kind), width, setting);
        if (length > width)
            buffer_printf(out, "\n%*s", indent, "");
        wrap(decision->reason, room, indent, out);
    }
    return out->failed ? -1 : 0;
}

static void field(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "\"%s\": ", name);
    buffer_json_string(out, value);
}

int decision_json(const struct decision_list *list, struct buffer *out)
{
    buffer_text(out, "[");
    for (int i = 0; i < list->count; i++) {
        const struct decision *decision = &list->items[i];
        buffer_text(out, i ? ",\n  {" : "\n  {");
        field(out, "variable", decision->name);
        buffer_text(out, ", ");
        field(out, "value", decision->value);
        buffer_text(out, ", ");
        field(out, "kind", decision_kind_name(decision->kind));
        buffer_text(out, ", ");
        field(out, "reason", decision->reason);
        buffer_text(out, ", ");
        field(out, "rule", decision->rule);
        buffer_text(out, "}");
    }
    return buffer_text(out, list->count ? "\n]" : "]");
}

/* Up to four entries of a kind: their settings or, for warnings, their names alone. */
static void list_kind(const struct decision_list *list, enum decision_kind kind, struct buffer *out)
{
    enum { SHOWN = 4 };
    int count = 0;
    const char *before = NULL;
    for (int i = 0; i < list->count; i++) {
        const struct decision *decision = &list->items[i];
        if (decision->kind != kind || (before && !strcmp(before, decision->name)))
            continue; /* several warnings about one variable are adjacent */
        before = decision->name;
        if (kind == DECISION_SET && !strncmp(decision->name, "TORCH_", 6))
            continue; /* the flight recorder's path is not worth a mention */
        if (count++ >= SHOWN)
            continue;
        buffer_printf(out, "%s%s", count == 1 ? " (" : ", ", decision->name);
        if (kind == DECISION_SET)
            buffer_printf(out, "=%.60s", decision->value);
    }
    if (count > SHOWN)
        buffer_printf(out, " and %d more", count - SHOWN);
    buffer_text(out, count ? ")" : "");
}

static int count_of(const struct decision_list *list, enum decision_kind kind)
{
    int count = 0;
    for (int i = 0; i < list->count; i++)
        count += list->items[i].kind == kind;
    return count;
}

int decision_summary(const struct decision_list *list, struct buffer *out)
{
    int kept = count_of(list, DECISION_KEPT), warned = count_of(list, DECISION_WARNED);
    if (list->count == 0)
        return buffer_text(out, "NCCL: nothing to set");
    buffer_printf(out, "NCCL: %d set", count_of(list, DECISION_SET));
    list_kind(list, DECISION_SET, out);
    if (kept)
        buffer_printf(out, ", %d kept as found", kept);
    if (warned) {
        buffer_printf(out, ", %d warning%s", warned, warned == 1 ? "" : "s");
        list_kind(list, DECISION_WARNED, out);
    }
    return out->failed ? -1 : 0;
}
