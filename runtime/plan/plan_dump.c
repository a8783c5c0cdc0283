/* plan_dump.c - a plan as text: complete and stable for golden files, and as a summary table. */
#include <inttypes.h>
#include <string.h>

#include "proto/base/text.h"
#include "runtime/plan/plan_internal.h"
#include "runtime/plan/plan_stages.h"

#define NAME_ENTRY(symbol, name) [symbol] = name,
static const char *const memory_names[] = {DEVICE_MEMORY_CLASSES(NAME_ENTRY)};
static const char *const comm_names[] = {COMM_KINDS(NAME_ENTRY)};

/* ---- dump ---- */

static void dump_head(const struct model *model, const struct plan *plan, struct buffer *out)
{
    const struct plan_options *o = &plan->options;
    (void)buffer_printf(out, "plan %s %s mesh %dx%dx%d rank %d micro %dx%dx%d %s prefetch %d/%d%s%s",
                        model->name, strategy_name(o->strategy), o->mesh.side[SIDE_PIPELINE],
                        o->mesh.side[SIDE_REPLICATE], o->mesh.side[SIDE_SHARD], o->rank, o->micro_batches,
                        o->shape.B, o->shape.T, dtype_name(o->dtype), o->prefetch_forward,
                        o->prefetch_backward, o->clip ? " clip" : "", o->train ? "" : " evaluate");
    if (o->param_dtype != o->dtype || o->reduce_dtype != o->dtype)
        (void)buffer_printf(out, " params %s reduce %s", dtype_name(o->param_dtype),
                            dtype_name(o->reduce_dtype));
    if (o->value_dtype != o->dtype)
        (void)buffer_printf(out, " values %s", dtype_name(o->value_dtype));
    if (o->check)
        (void)buffer_text(out, " check");
    if (o->compression.kind == COMPRESSION_TOPK)
        (void)buffer_printf(out, " topk %g", o->compression.ratio);
    if (o->compression.kind == COMPRESSION_POWERSGD)
        (void)buffer_printf(out, " powersgd %d", o->compression.rank);
    (void)buffer_printf(
        out, "\nops %d entries %d first_backward %d gathers_in_flight %d hash %016" PRIx64 "\n",
        plan->op_count, plan->entry_count, plan->first_backward, plan->gathers_in_flight, plan->hash);
    (void)buffer_text(out, "arenas");
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++)
        (void)buffer_printf(out, " %s %" PRId64, memory_names[m], plan->arena_bytes[m]);
    (void)buffer_text(out, "\n");
}

static void dump_groups(const struct model *model, const struct plan *plan, struct buffer *out)
{
    (void)buffer_text(out, "\ngroups\n");
    for (int g = 0; g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        (void)buffer_printf(out, "g%d %s %s stage %d", g, group->name, group->trainable ? "train" : "frozen",
                            plan_first_stage(group));
        for (int stage = plan_first_stage(group) + 1; stage < PLAN_STAGES; stage++)
            if (group->stages >> stage & 1)
                (void)buffer_printf(out, " tied %d", stage);
        if (group->stored != STORED_PLAIN)
            (void)buffer_printf(out, " %s", stored_name(group->stored));
        (void)buffer_printf(out, " padded %" PRId64 " / %d = %" PRId64 " at %" PRId64, group->padded,
                            group->shard_size, group->shard, group->shard_start);
        if (group->local)
            (void)buffer_printf(out, "%s%s%s param b%d", group->resident ? " resident" : "",
                                group->whole ? " whole" : "", group->statistic ? " statistics" : "",
                                group->param);
        if (group->master >= 0)
            (void)buffer_printf(out, " master b%d", group->master);
        if (group->local && group->trainable)
            (void)buffer_printf(out, " grad b%d moments b%d b%d", group->grad, group->moment1,
                                group->moment2);
        if (group->average >= 0)
            (void)buffer_printf(out, " average b%d", group->average);
        (void)buffer_text(out, "\n");
        for (int i = 0; i < group->param_count; i++) {
            int param = plan->group_params[group->first_param + i];
            (void)buffer_printf(out, "   %" PRId64 " %s\n", plan->places[param].offset,
                                model->params[param].name);
        }
    }
    (void)buffer_text(out, "\nsegments\n");
    for (int g = 0; g < plan->group_count; g++) {
        const struct optimizer_segment *segments = plan->segments + plan->groups[g].first_segment;
        for (int s = 0; s < plan->groups[g].segment_count; s++)
            (void)buffer_printf(out, "g%d class %d %" PRId64 " + %" PRId64 "\n", g,
                                segments[s].parameter_class, segments[s].offset, segments[s].count);
    }
}

static void dump_entries(const struct plan *plan, struct buffer *out)
{
    (void)buffer_text(out, "\nbuffers\n");
    for (int e = 0; e < plan->entry_count; e++) {
        const struct plan_entry *entry = &plan->entries[e];
        (void)buffer_printf(out, "b%d %s %s %s @%" PRId64 " + %" PRId64, e, plan_kind_name(entry->kind),
                            memory_names[entry->memory], dtype_name(entry->dtype), entry->offset,
                            entry->bytes);
        const int where[] = {entry->group, entry->layer, entry->micro, entry->slot};
        for (int i = 0; i < 4; i++)
            if (where[i] >= 0)
                (void)buffer_printf(out, " %c%d", "glms"[i], where[i]);
        if (entry->first_op >= 0)
            (void)buffer_printf(out, " live %d-%d", entry->first_op, entry->last_op);
        (void)buffer_text(out, entry->checkpointed ? " checkpointed\n" : "\n");
    }
}

static void dump_buffer(struct buffer *out, const char *name, int entry)
{
    if (entry >= 0)
        (void)buffer_printf(out, " %s b%d", name, entry);
}

static void dump_call(const struct model *model, const struct schedule_op *op, struct buffer *out)
{
    static const char *const modes[] = {"", " recompute", " eval"};
    const struct layer_desc *layer = &model->layers[op->layer];
    (void)buffer_printf(out, " %s m%d%s", layer->name, op->micro, modes[op->mode]);
    if (op->kind == OP_BACKWARD)
        (void)buffer_printf(out, "%s%s", op->parts & LAYER_INPUT ? " input" : "",
                            op->parts & LAYER_WEIGHT ? " weight" : "");
    for (int i = 0; i < op->group_count; i++) {
        (void)buffer_printf(out, " g%d=b%d", op->used_group[i], op->weight[i]);
        if (op->grad[i] >= 0)
            (void)buffer_printf(out, "/b%d", op->grad[i]);
    }
    if (op->kind == OP_BACKWARD && op->parts & LAYER_WEIGHT) {
        (void)buffer_text(out, " beta ");
        for (int i = 0; i < layer->param_count; i++)
            (void)buffer_text(out, op->grad_beta[i] ? "1" : "0");
    }
    for (int i = 0; i < LAYER_SOURCES; i++)
        dump_buffer(out, "in", op->in[i]);
    dump_buffer(out, "out", op->out);
    dump_buffer(out, "dout", op->dout);
    for (int i = 0; i < LAYER_SOURCES; i++)
        dump_buffer(out, op->din_beta[i] ? "din+" : "din", op->din[i]);
    dump_buffer(out, "saved", op->saved);
    dump_buffer(out, "work", op->work);
}

static void dump_place(struct buffer *out, int entry, int64_t offset)
{
    if (entry < 0)
        (void)buffer_text(out, " -");
    else if (offset)
        (void)buffer_printf(out, " b%d+%" PRId64, entry, offset);
    else
        (void)buffer_printf(out, " b%d", entry);
}

static void dump_move(const struct schedule_op *op, struct buffer *out)
{
    if (op->kind == OP_COMM) {
        (void)buffer_printf(out, " %s %s %" PRId64 " %s%s", comm_names[op->comm.kind], axis_name(op->axis),
                            op->comm.count, dtype_name(op->comm.dtype), op->comm.accumulate ? " add" : "");
        if (op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV)
            (void)buffer_printf(out, " peer %d l%d%s", op->comm.root, op->layer, op->joins ? " joins" : "");
    }
    if (op->group >= 0)
        (void)buffer_printf(out, " g%d", op->group);
    if (op->micro >= 0)
        (void)buffer_printf(out, " m%d", op->micro);
    dump_place(out, op->from, op->from_offset);
    (void)buffer_text(out, " ->");
    dump_place(out, op->to, op->to_offset);
    if (op->kind == OP_ENCODE || op->kind == OP_DECODE) {
        dump_buffer(out, "feedback", op->feedback);
        dump_buffer(out, "dense", op->dense);
        dump_buffer(out, "factor", op->factor);
        dump_buffer(out, "right", op->right);
        dump_buffer(out, "work", op->work);
    }
    if (op->bytes)
        (void)buffer_printf(out, " %" PRId64 " B", op->bytes);
    if (op->beta)
        (void)buffer_text(out, " add");
}

static void dump_ops(const struct model *model, const struct plan *plan, struct buffer *out)
{
    (void)buffer_text(out, "\nschedule\n");
    for (int o = 0; o < plan->op_count; o++) {
        const struct schedule_op *op = &plan->ops[o];
        (void)buffer_printf(out, "%d %s %s", o, stream_name(op->stream), op_kind_name(op->kind));
        if (op->kind == OP_FORWARD || op->kind == OP_BACKWARD)
            dump_call(model, op, out);
        else
            dump_move(op, out);
        for (int i = 0; i < op->wait_count; i++) /* -1: of the step before */
            (void)buffer_printf(out, "%s %d%s", i ? "" : " after", op->wait[i],
                                op->wait[i] > o ? "(-1)" : "");
        (void)buffer_text(out, op->votes ? " votes" : "");
        (void)buffer_text(out, op->when == WHEN_DENSE        ? " while dense"
                               : op->when == WHEN_COMPRESSED ? " while compressed"
                                                             : "");
        (void)buffer_text(out, op->carried ? " carried" : "");
        (void)buffer_text(out, op->signal ? " signal\n" : "\n");
    }
}

int plan_dump(const struct model *model, const struct plan *plan, struct buffer *out)
{
    dump_head(model, plan, out);
    dump_groups(model, plan, out);
    dump_entries(plan, out);
    dump_ops(model, plan, out);
    return out->failed ? -1 : 0; /* a failed append makes the later ones do nothing */
}

/* ---- summary ---- */

/* Frozen parameters as this rank holds them. */
struct held {
    int64_t params, elements, bytes;
};

static void add_held(struct held *held, const struct plan *plan, const struct param_group *group)
{
    held->params += group->param_count;
    held->elements += group->elements / group->shard_size;
    held->bytes += plan->entries[group->param].bytes;
}

static double of_bf16(const struct held *held)
{
    return (double)held->bytes / (double)(held->elements * dtype_size(DTYPE_BF16));
}

/* Bytes of parameters held in few bits, and of all frozen parameters, compared with their bytes in bf16. */
static void summarise_stored(const struct plan *plan, struct buffer *out)
{
    char text[32], rest[32];
    struct held stored = {0}, plain = {0}, all = {0};
    enum stored kind = STORED_PLAIN;
    for (int g = 0; g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        if (group->trainable || !group->local)
            continue;
        add_held(group->stored != STORED_PLAIN ? &stored : &plain, plan, group);
        add_held(&all, plan, group);
        kind = group->stored != STORED_PLAIN ? group->stored : kind;
    }
    if (kind == STORED_PLAIN)
        return;
    (void)buffer_printf(out,
                        "%" PRId64 " frozen parameters are held and gathered as %s: %s a rank, %.3f of what "
                        "bf16 would be; layers read them opened\n",
                        stored.params, stored_name(kind), text_format_bytes(text, sizeof text, stored.bytes),
                        of_bf16(&stored));
    (void)buffer_printf(out,
                        "all %" PRId64 " that are frozen: %s a rank, %.3f of what bf16 would be; %" PRId64
                        " of them, %s, are held in %s\n",
                        all.params, text_format_bytes(text, sizeof text, all.bytes), of_bf16(&all),
                        plain.params, text_format_bytes(rest, sizeof rest, plain.bytes),
                        dtype_name(plan->options.param_dtype));
}

static void summarise_compression(const struct plan *plan, struct buffer *out)
{
    const struct plan_options *o = &plan->options;
    const struct plan_wire wire = plan_wire_bytes(plan);
    char sent[32], dense[32];
    const int replicas = o->strategy == STRATEGY_NO_SHARD ? mesh_line(o->mesh, AXIS_DATA, o->rank).size
                                                          : o->mesh.side[SIDE_REPLICATE];
    (void)buffer_printf(out,
                        "gradients between %d replica%s, %s: a rank sends %" PRId64
                        " bytes a step (%s), dense %" PRId64 " (%s)\n",
                        replicas, replicas == 1 ? "" : "s", compression_name(o->compression.kind),
                        wire.compressed, text_format_bytes(sent, sizeof sent, wire.compressed), wire.dense,
                        text_format_bytes(dense, sizeof dense, wire.dense));
    if (o->compression.kind == COMPRESSION_TOPK)
        (void)buffer_printf(
            out, "from %d replicas on, top-k with compression_ratio %g moves more than dense gradients%s\n",
            plan_topk_border(plan), o->compression.ratio,
            replicas >= plan_topk_border(plan) ? ": use a smaller ratio, or powersgd" : "");
    if (o->compression.start)
        (void)buffer_printf(out, "the first %" PRId64 " steps are dense\n", o->compression.start);
}

int plan_summary(const struct model *model, const struct plan *plan, struct buffer *out)
{
    const struct plan_options *o = &plan->options;
    char text[32];
    int64_t total = 0;
    (void)buffer_printf(
        out,
        "%s: %" PRId64 " parameters, %s on %d rank%s (pipeline %d, replicate %d, shard %d), %d x %d x %d "
        "tokens a rank and step\n",
        model->name, model_parameters(model), strategy_name(o->strategy), o->world_size,
        o->world_size == 1 ? "" : "s", o->mesh.side[SIDE_PIPELINE], o->mesh.side[SIDE_REPLICATE],
        o->mesh.side[SIDE_SHARD], o->micro_batches, o->shape.B, o->shape.T);
    if (model->adapter_scale != 0) {
        int64_t adapters = 0;
        for (int i = 0; i < model->param_count; i++)
            adapters += model_is_base(model, i) ? 0 : param_elements(&model->params[i]);
        (void)buffer_printf(out, "adapters: %" PRId64 " parameters are trained, %" PRId64 " are frozen\n",
                            adapters, model_parameters(model) - adapters);
    }
    summarise_stored(plan, out);
    if (o->param_dtype != o->dtype || o->reduce_dtype != o->dtype)
        (void)buffer_printf(out, "parameters gathered in %s, gradients reduced in %s, arithmetic in %s\n",
                            dtype_name(o->param_dtype), dtype_name(o->reduce_dtype),
                            dtype_name(o->value_dtype));
    if (o->compression.kind != COMPRESSION_NONE)
        summarise_compression(plan, out);
    if (o->strategy == STRATEGY_SHARD_GRAD_OP) {
        const int64_t size = (int64_t)dtype_size(o->param_dtype);
        (void)buffer_printf(out,
                            "every rank keeps all P parameters from forward to backward: %" PRId64
                            "P bytes, %s; FULL_SHARD gathers them twice instead\n",
                            size, text_format_bytes(text, sizeof text, size * model_parameters(model)));
    }
    (void)buffer_text(out, "bytes per rank by kind (buffers that are never alive together share memory)\n");
    for (int k = 0; k < PLAN_KIND_COUNT; k++)
        if (plan->kind_bytes[k])
            (void)buffer_printf(out, "  %-15s %16" PRId64 "  %s\n", plan_kind_name(k), plan->kind_bytes[k],
                                text_format_bytes(text, sizeof text, plan->kind_bytes[k]));
    (void)buffer_text(out, "bytes per rank by memory class (what is allocated)\n");
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++) {
        total += plan->arena_bytes[m];
        if (plan->arena_bytes[m])
            (void)buffer_printf(out, "  %-15s %16" PRId64 "  %s\n", memory_names[m], plan->arena_bytes[m],
                                text_format_bytes(text, sizeof text, plan->arena_bytes[m]));
    }
    (void)buffer_printf(out, "  %-15s %16" PRId64 "  %s\n", "total", total,
                        text_format_bytes(text, sizeof text, total));
    int whole = 0, kept = 0;
    for (int g = 0; g < plan->group_count; g++) {
        whole += plan->groups[g].whole;
        kept += plan->groups[g].whole ? plan->groups[g].param_count : 0;
    }
    if (whole)
        (void)buffer_printf(out, "%d parameters below %s are kept whole by every rank, in %d group%s\n", kept,
                            text_format_bytes(text, sizeof text, o->keep_whole_bytes), whole,
                            whole > 1 ? "s" : "");
    (void)buffer_printf(out, "%d param group%s, at most %d gather%s in flight, %d operations a step\n",
                        plan->group_count, plan->group_count == 1 ? "" : "s", plan->gathers_in_flight,
                        plan->gathers_in_flight == 1 ? "" : "s", plan->op_count);
    if (o->mesh.side[SIDE_PIPELINE] > 1 && plan_stages_text(model, plan, out) < 0)
        return -1;
    return out->failed ? -1 : 0;
}
