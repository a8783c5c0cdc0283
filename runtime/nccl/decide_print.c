/* decide_print.c - decisions for people and for programs. */
#include <stdio.h>
#include <string.h>

#include "runtime/nccl/decide.h"

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

static int count_of(const struct decision_list *list, enum decision_kind kind)
{
    int count = 0;
    for (int i = 0; i < list->count; i++)
        count += list->items[i].kind == kind;
    return count;
}

int decision_summary(const struct decision_list *list, struct buffer *out)
{
    int set = count_of(list, DECISION_SET), kept = count_of(list, DECISION_KEPT),
        warned = count_of(list, DECISION_WARNED), shown = 0;
    if (list->count == 0)
        return buffer_text(out, "NCCL: nothing to set");
    buffer_printf(out, "NCCL: %d set, %d kept, %d warning%s", set, kept, warned, warned == 1 ? "" : "s");
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == DECISION_SET && strncmp(list->items[i].name, "TORCH_", 6) &&
            strcmp(list->items[i].name, "TP_SOCKET_IFNAME") && shown++ < 4)
            buffer_printf(out, "%s%s=%.60s", shown == 1 ? " (" : ", ", list->items[i].name,
                          list->items[i].value);
    return buffer_text(out, shown ? ")" : "");
}
