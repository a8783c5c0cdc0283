/* plan_rows.c - gradients of lookups, exchanged as the rows that they are.
 *
 * A table that a layer looks rows up in (an embedding) gets a gradient in as many rows as a micro-batch has
 * positions. The lookup is the first layer of the model: written into the table's gradient, these rows would
 * delay its reduction until backward ends. No compute would be left to overlap with. Instead every rank gets
 * the rows of all ranks, with their indices, and adds the rows of its own shard, in the order of ranks and
 * positions.
 *
 * Where other layers write the same gradient (a tied head), rows are exchanged in a step's last micro-batch
 * only. There the other layers' part is reduced as soon as it is complete, and the rows are added to the
 * result. In earlier micro-batches the rows are part of the gradient, whose reduction overlaps the next
 * micro-batch. Where no other layer writes the gradient, rows are exchanged in all micro-batches, and there
 * is no full gradient.
 *
 * The rows go over the gather stream, which has nothing left to do by then: the rows need not wait for the
 * reductions of earlier layers. */
#include <limits.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

/* ---- choice ---- */

/* Counts the backward calls that write each group's gradient, in one pass over the layers. */
static void count_writers(struct plan_builder *b)
{
    const int parts = b->model->parts;
    b->writers = mem_calloc((size_t)b->plan->group_count * (size_t)parts, sizeof *b->writers);
    if (!b->writers) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to plan the gradients of %d groups",
                              b->plan->group_count);
        return;
    }
    for (int g = 0; g < b->plan->group_count; g++)
        b->groups[g].rows_layer = -1;
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct plan_layer *layer = &b->layers[l];
        for (int i = 0; b->options->train && layer->local && i < layer->group_count; i++) {
            const int g = layer->group[i];
            int *writers = &b->writers[g * parts + b->model->layers[l].part];
            if (!b->plan->groups[g].trainable)
                continue;
            b->groups[g].backward_steps++;
            b->groups[g].turns += (*writers)++ == 0 ? b->options->micro_batches : 0;
        }
    }
}

static int64_t row_width(const struct plan_builder *b, int layer)
{
    return b->model->params[b->model->layers[layer].param[0]].dim[1];
}

static int64_t row_count(const struct plan_builder *b)
{
    return (int64_t)b->options->shape.B * b->options->shape.T;
}

static bool possible(const struct plan_builder *b, int layer)
{
    const struct plan_options *o = b->options;
    return b->model->layers[layer].lookup && o->train && b->layers[layer].trainable && b->model->parts == 1 &&
           b->row_ranks > 1 && o->compression.kind == COMPRESSION_NONE &&
           (!o->kernels || o->kernels->rows_add) && row_count(b) * b->row_ranks <= INT_MAX;
}

/* Compares the bytes that a rank receives as rows with its part of a reduce-scatter. Up to half of these
 * bytes the rows fit easily into the memory that the full gradient had. */
static bool pays(const struct plan_builder *b, int l)
{
    const struct layer_desc *layer = &b->model->layers[l];
    const int64_t rows = row_count(b) * b->row_ranks * row_width(b, l) * b->value;
    int64_t tables = 0;
    for (int i = 0; i < layer->param_count; i++)
        if (b->model->params[layer->param[i]].trainable)
            tables += param_elements(&b->model->params[layer->param[i]]) * b->reduce;
    return b->options->embedding_gradient == EMBEDDING_ROWS ||
           (b->options->embedding_gradient == EMBEDDING_AUTO && 2 * rows <= tables);
}

/* The first micro-batch whose rows are exchanged: the step's last if all the layer's groups have other
 * writers, the step's first if no group has. A layer with both kinds of groups exchanges rows only in a step
 * of a single micro-batch. */
static int first_micro(const struct plan_builder *b, int l)
{
    const struct plan_layer *layer = &b->layers[l];
    const int last = b->options->micro_batches - 1;
    int groups = 0, shared = 0;
    for (int i = 0; i < layer->group_count; i++) {
        const int g = layer->group[i];
        if (!b->plan->groups[g].trainable)
            continue;
        if (b->groups[g].rows_layer >= 0)
            return INT_MAX; /* the second of two lookups in one group stays dense */
        groups++;
        shared += b->groups[g].backward_steps > 1;
    }
    if (shared == 0)
        return 0;
    return shared == groups || last == 0 ? last : INT_MAX;
}

void plan_choose_rows(struct plan_builder *b)
{
    count_writers(b);
    for (int l = 0; !b->failed && l < b->model->layer_count; l++) {
        struct plan_layer *layer = &b->layers[l];
        layer->rows = layer->row_index = -1;
        layer->rows_from = possible(b, l) && pays(b, l) ? first_micro(b, l) : INT_MAX;
        for (int i = 0; layer->rows_from < INT_MAX && i < layer->group_count; i++)
            if (b->plan->groups[layer->group[i]].trainable)
                b->groups[layer->group[i]].rows_layer = l;
    }
}

/* Rows are exchanged in a model of one part alone. */
int plan_writers(const struct plan_builder *b, int group, int part, int micro)
{
    const int lookup = b->groups[group].rows_layer;
    return b->writers[group * b->model->parts + part] - (lookup >= 0 && plan_sends_rows(b, lookup, micro));
}

bool plan_has_full_gradient(const struct plan_builder *b, int group)
{
    const int lookup = b->groups[group].rows_layer;
    return b->groups[group].backward_steps - (lookup >= 0 && plan_sends_rows(b, lookup, 0)) > 0;
}

/* ---- operations ---- */

static bool written_by_others(const struct plan_builder *b, int lookup, int param)
{
    for (int l = 0; l < b->model->layer_count; l++)
        for (int i = 0; l != lookup && i < b->model->layers[l].param_count; i++)
            if (b->model->layers[l].param[i] == param)
                return true;
    return false;
}

static void rows_zero(struct plan_builder *b, int group, int micro, int entry, int64_t offset, int64_t bytes)
{
    struct schedule_op op = plan_op(OP_FILL, STREAM_COMPUTE);
    op.group = group;
    op.micro = micro;
    op.to = entry;
    op.to_offset = offset;
    op.bytes = bytes;
    plan_emit(b, &op, -1);
}

void plan_fill_rows(struct plan_builder *b, int group, int micro)
{
    const int l = b->groups[group].rows_layer;
    if (l < 0 || !plan_sends_rows(b, l, micro))
        return;
    const struct layer_desc *layer = &b->model->layers[l];
    for (int i = 0; i < layer->param_count; i++) {
        const int p = layer->param[i];
        const struct param_place *place = &b->plan->places[p];
        if (place->group == group && !written_by_others(b, l, p) &&
            (plan_reshards(b, group) || b->written[p] < 0))
            rows_zero(b, group, -1, b->groups[group].grad, place->offset * b->real,
                      param_elements(&b->model->params[p]) * b->real);
    }
}

/* Copies this rank's part to its place among the parts of all ranks, and gathers the other parts. */
static void gather_parts(struct plan_builder *b, const struct plan_step *step, int from, int64_t offset,
                         int to, enum dtype dtype, int64_t count)
{
    struct schedule_op op = plan_op(OP_COPY, STREAM_COMPUTE);
    op.layer = step->layer;
    op.micro = step->micro;
    op.from = from;
    op.from_offset = offset;
    op.to = to;
    op.bytes = count * dtype_size(dtype);
    op.to_offset = op.bytes * b->row_place;
    plan_emit(b, &op, b->stall);
    struct schedule_op gather = plan_op(OP_COMM, STREAM_GATHER);
    gather.axis = b->row_axis;
    gather.layer = step->layer;
    gather.micro = step->micro;
    gather.from = gather.to = to;
    gather.from_offset = op.to_offset;
    plan_emit_comm(b, &gather, COMM_ALL_GATHER, dtype, count);
}

/* The free gradient slot of sufficient size that was released first; -1: none. */
static int free_slot(const struct plan_builder *b, const struct plan_layer *layer, int64_t bytes)
{
    int best = -1;
    for (int i = 0; i < layer->group_count; i++) {
        const struct slot_class *class = &b->classes[b->groups[layer->group[i]].slot_class];
        for (int e = class->grad_first; e < class->grad_first + class->grad_count; e++)
            if (!b->entry_states[e].busy && b->plan->entries[e].bytes >= bytes &&
                (best < 0 || b->entry_states[e].released < b->entry_states[best].released))
                best = e;
    }
    return best;
}

static int own_buffer(struct plan_builder *b, int layer, enum plan_kind kind, enum dtype dtype, int64_t count)
{
    int entry = plan_add_buffer(b, kind, MEMORY_COMM, count * dtype_size(dtype));
    b->plan->entries[entry].dtype = dtype;
    b->plan->entries[entry].layer = layer;
    return entry;
}

/* Memory for the rows: the full gradient's memory, if it has been released. */
static int take_rows(struct plan_builder *b, int l, int64_t count)
{
    struct plan_layer *layer = &b->layers[l];
    const int slot = free_slot(b, layer, count * b->value);
    if (slot < 0 && layer->rows < 0)
        layer->rows = own_buffer(b, l, PLAN_ROWS, b->options->value_dtype, count);
    return slot < 0 ? layer->rows : slot;
}

/* Adds rows to the group's gradient, which holds the other layers' reduced part, or zeros. */
static void add_rows(struct plan_builder *b, struct plan_step *step, int g, int rows, int64_t count)
{
    const struct param_group *group = &b->plan->groups[g];
    if (step->micro == 0 && !plan_has_full_gradient(b, g))
        rows_zero(b, g, 0, group->grad, 0, group->shard * b->real);
    plan_finish_gradient(b, g);
    struct schedule_op op = plan_op(OP_ROWS, STREAM_COMPUTE);
    op.layer = step->layer;
    op.micro = step->micro;
    op.group = g;
    op.from = rows;
    op.batch = b->layers[step->layer].row_index;
    op.to = group->grad;
    op.bytes = count * b->value / group->shard_size;
    step->op = plan_emit(b, &op, -1);
    b->groups[g].reduced = b->plan->op_count;
}

void plan_exchange_rows(struct plan_builder *b, int index)
{
    struct plan_step *step = &b->steps[index];
    const int l = step->layer, at = l * b->options->micro_batches + step->micro;
    struct plan_layer *layer = &b->layers[l];
    const int64_t positions = row_count(b), elements = positions * row_width(b, l);
    if (layer->row_index < 0)
        layer->row_index = own_buffer(b, l, PLAN_ROW_INDEX, DTYPE_I32, positions * b->row_ranks);
    gather_parts(b, step, b->batch[step->micro],
                 batch_offset(b->model, b->options->shape, b->model->layers[l].lookup - 1), layer->row_index,
                 DTYPE_I32, positions);
    const int rows = take_rows(b, l, elements * b->row_ranks);
    gather_parts(b, step, b->dout[at], 0, rows, b->options->value_dtype, elements);
    b->stall = -1;
    for (int i = 0; i < layer->group_count; i++)
        if (b->plan->groups[layer->group[i]].trainable)
            add_rows(b, step, layer->group[i], rows, elements * b->row_ranks);
    if (rows != layer->rows)
        b->entry_states[rows].released = b->plan->op_count;
}
