/* plan_json.c - a plan as the members of a JSON object, for `muster-train --plan --output=json`;
 * runtime/plan/README.md has its schema. */
#include <inttypes.h>

#include "runtime/plan/plan_internal.h"
#include "runtime/plan/plan_stages.h"

static void json_name(struct buffer *out, const char *name)
{
    (void)buffer_json_string(out, name);
    (void)buffer_text(out, ": ");
}

static void json_model(const struct model *model, const struct plan *plan, struct buffer *out)
{
    const struct plan_options *o = &plan->options;
    (void)buffer_text(out, "\"schema\": \"muster-plan-1\", \"model\": ");
    (void)buffer_json_string(out, model->name);
    (void)buffer_printf(out,
                        ", \"parameters\": %" PRId64 ", \"strategy\": \"%s\", \"world_size\": %d,\n"
                        " \"mesh\": {\"pipeline\": %d, \"replicate\": %d, \"shard\": %d}, \"rank\": %d,\n"
                        " \"batch\": %d, \"positions\": %d, \"micro_batches\": %d, \"dtype\": \"%s\",\n"
                        " \"recompute\": \"%s\", \"recompute_every\": %d, \"optimizer_memory\": \"%s\",\n",
                        model_parameters(model), strategy_name(o->strategy), o->world_size,
                        o->mesh.side[SIDE_PIPELINE], o->mesh.side[SIDE_REPLICATE], o->mesh.side[SIDE_SHARD],
                        o->rank, o->shape.B, o->shape.T, o->micro_batches, dtype_name(o->dtype),
                        recompute_name(o->recompute.kind), o->recompute.every,
                        memory_class_name(o->optimizer_memory));
}

static void json_bytes(const struct plan *plan, struct buffer *out)
{
    int64_t total = 0;
    (void)buffer_text(out, " \"bytes_by_kind\": {");
    for (int k = 0; k < PLAN_KIND_COUNT; k++) {
        (void)buffer_text(out, k ? ", " : "");
        json_name(out, plan_kind_name((enum plan_kind)k));
        (void)buffer_printf(out, "%" PRId64, plan->kind_bytes[k]);
    }
    (void)buffer_text(out, "},\n \"bytes_by_memory\": {");
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++) {
        (void)buffer_text(out, m ? ", " : "");
        json_name(out, memory_class_name((enum memory_class)m));
        (void)buffer_printf(out, "%" PRId64, plan->arena_bytes[m]);
        total += plan->arena_bytes[m];
    }
    (void)buffer_printf(out, "},\n \"bytes\": %" PRId64 ",\n", total);
}

static void json_wire(const struct plan *plan, struct buffer *out)
{
    const struct plan_wire wire = plan_wire_bytes(plan);
    (void)buffer_printf(
        out, " \"compression\": \"%s\", \"wire_bytes\": %" PRId64 ", \"dense_wire_bytes\": %" PRId64 ",\n",
        compression_name(plan->options.compression.kind), wire.compressed, wire.dense);
}

static void json_groups(const struct plan *plan, struct buffer *out)
{
    (void)buffer_text(out, " \"groups\": [");
    for (int g = 0; g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        (void)buffer_text(out, g ? ",\n  {\"name\": " : "\n  {\"name\": ");
        (void)buffer_json_string(out, group->name);
        (void)buffer_printf(
            out,
            ", \"parameters\": %d, \"elements\": %" PRId64 ", \"shard_elements\": %" PRId64
            ", \"shard_size\": %d, \"trainable\": %s, \"whole\": %s, \"statistics\": %s, \"stored\": \"%s\", "
            "\"held_bytes\": %" PRId64 "}",
            group->param_count, group->elements, group->shard, group->shard_size,
            group->trainable ? "true" : "false", group->whole ? "true" : "false",
            group->statistic ? "true" : "false", stored_name(group->stored),
            group->param >= 0 ? plan->entries[group->param].bytes : 0);
    }
    (void)buffer_text(out, "],\n");
}

int plan_json(const struct model *model, const struct plan *plan, const char *more, struct buffer *out)
{
    json_model(model, plan, out);
    json_bytes(plan, out);
    if (plan->options.compression.kind != COMPRESSION_NONE)
        json_wire(plan, out);
    json_groups(plan, out);
    if (plan->options.mesh.side[SIDE_PIPELINE] > 1 && plan_stages_json(model, plan, out) < 0)
        return -1;
    (void)buffer_printf(out, " \"operations\": %d, \"gathers_in_flight\": %d, \"hash\": \"%016" PRIx64 "\"%s",
                        plan->op_count, plan->gathers_in_flight, plan->hash, more);
    return out->failed ? -1 : 0;
}
