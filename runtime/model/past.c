/* past.c - see past.h. */
#include "runtime/model/past.h"

#include "runtime/model/program_internal.h"

/* Operations whose rows do not depend on other rows. */
static bool is_by_row(const struct operation *op)
{
    static const struct operation *const rows[] = {
        &operation_linear,     &operation_layer_norm, &operation_rms_norm,  &operation_rotary,
        &operation_activation, &operation_gated,      &operation_slice,     &operation_add,
        &operation_scale,      &operation_dropout,    &operation_embedding, &operation_cross_entropy};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] == op)
            return true;
    return false;
}

/* Elements that an attention keeps of a position; -1: it is none that can. */
static int64_t kept_elements(const struct program *p, const struct program_step *step)
{
    const struct operation_settings *s = &step->settings;
    const bool attends = step->op == &operation_attention || step->op == &operation_attention_packed;
    if (!attends)
        return is_by_row(step->op) ? 0 : -1;
    return s->causal ? 2 * p->values[step->out].width / s->heads * s->kv_heads : -1;
}

static size_t work_bytes(const struct program *p, const struct program_step *step,
                         const struct kernels *kernels, int room)
{
    const struct operation_settings *s = &step->settings;
    const struct attention a = {.B = 1,
                                .T = room < PAST_CHUNK ? room : PAST_CHUNK,
                                .heads = s->heads,
                                .kv_heads = s->kv_heads,
                                .head_size = p->values[step->out].width / s->heads,
                                .causal = 1};
    return kernels->attention_past_work(&a, room);
}

bool model_past_sizes(const struct model *model, const struct kernels *kernels, int room,
                      struct past_sizes *sizes)
{
    *sizes = (struct past_sizes){0};
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        if (model->layers[l].ops != &program_ops)
            return false;
        for (int s = 0; s < p->step_count; s++) {
            const int64_t kept = kept_elements(p, &p->steps[s]);
            const size_t work = kept > 0 ? work_bytes(p, &p->steps[s], kernels, room) : 0;
            if (kept < 0)
                return false;
            sizes->cache += kept * room * dtype_size(kernels->value);
            sizes->work = (int64_t)work > sizes->work ? (int64_t)work : sizes->work;
        }
    }
    return true;
}

void past_attention(const struct operation_call *c, const struct attention *a)
{
    const struct layer_context *x = c->context;
    struct layer_past *past = x->past;
    const int64_t side = (int64_t)a->kv_heads * past->room * a->head_size * dtype_size(x->kernels->value);
    char *keys = (char *)past->cache + past->taken;
    past->taken += 2 * side;
    x->kernels->attention_past(c->out, keys, keys + side, c->in[0], c->in[1], c->in[2], a, past->at,
                               past->room, past->work, x->stream);
}
