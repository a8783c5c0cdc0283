/* plan_names.c - printable names of the plan's enums. */
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
    static const char *const names[] = {"compute", "gather", "reduce"};
    return NAME_OF(names, stream);
}

const char *axis_name(enum mesh_axis axis)
{
    static const char *const names[] = {"shard", "replicate", "pipeline", "tied", "world"};
    return NAME_OF(names, axis);
}
