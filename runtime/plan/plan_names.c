/* plan_names.c - printable names of the plan's enums and of the plan's choices. */
#include <stdio.h>
#include <string.h>

#include "runtime/plan/plan.h"

#define NAME_ENTRY(symbol, name) [symbol] = name,
#define NAME_OF(names, value)                                                                                \
    ((unsigned)(value) < sizeof(names) / sizeof *(names) && (names)[value] ? (names)[value] : "unknown")

const char *strategy_name(enum strategy strategy)
{
    static const char *const names[] = {PLAN_STRATEGIES(NAME_ENTRY)};
    return NAME_OF(names, strategy);
}

const char *recompute_name(enum recompute recompute)
{
    static const char *const names[] = {RECOMPUTES(NAME_ENTRY)};
    return NAME_OF(names, recompute);
}

const char *embedding_gradient_name(enum embedding_gradient gradient)
{
    static const char *const names[] = {EMBEDDING_GRADIENTS(NAME_ENTRY)};
    return NAME_OF(names, gradient);
}

const char *pipe_schedule_name(enum pipe_schedule schedule)
{
    static const char *const names[] = {PIPE_SCHEDULES(NAME_ENTRY)};
    return NAME_OF(names, schedule);
}

const char *compression_name(enum compression compression)
{
    static const char *const names[] = {COMPRESSIONS(NAME_ENTRY)};
    return NAME_OF(names, compression);
}

const char *plan_kind_name(enum plan_kind kind)
{
    static const char *const names[] = {PLAN_KINDS(NAME_ENTRY)};
    return NAME_OF(names, kind);
}

const char *op_kind_name(enum op_kind kind)
{
    static const char *const names[] = {PLAN_OPS(NAME_ENTRY)};
    return NAME_OF(names, kind);
}

const char *stream_name(enum stream_id stream)
{
    static const char *const names[] = {
        "compute",         "gather",        "reduce",           "activations",    "gradients",
        "activations-odd", "gradients-odd", "activations-last", "gradients-last", "transfers"};
    return NAME_OF(names, stream);
}

static bool sends_rows(const struct plan *plan, int layer)
{
    for (int o = 0; o < plan->op_count; o++)
        if (plan->ops[o].kind == OP_ROWS && plan->ops[o].layer == layer)
            return true;
    return false;
}

void plan_embedding_text(const struct model *model, const struct plan *plan, char *text, size_t size)
{
    size_t used = 0;
    (void)snprintf(text, size, "dense");
    for (int l = 0; l < model->layer_count; l++) {
        if (!model->layers[l].lookup || !sends_rows(plan, l))
            continue;
        (void)snprintf(text + used, size - used, "%s%s", used ? ", " : "rows of ", model->layers[l].name);
        used = strlen(text);
    }
}
