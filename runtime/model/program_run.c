/* program_run.c - a program as a layer: sizes, forward and backward are walks over its steps. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/model/head.h"
#include "runtime/model/program_internal.h"

enum { ALIGNMENT = 64 };

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t program_rows(const struct program *p, int value, struct shape shape)
{
    return (int64_t)shape.B * (p->values[value].sample ? 1 : shape.T);
}

static int64_t value_bytes(const struct program *p, int value, struct shape shape,
                           const struct kernels *kernels)
{
    const enum dtype dtype = p->values[value].statistic ? kernels->statistic : kernels->value;
    return program_rows(p, value, shape) * p->values[value].width * dtype_size(dtype);
}

int64_t program_top(const struct program *p, const struct program_offsets *offsets, program_set homes,
                    struct shape shape, const struct kernels *kernels)
{
    int64_t top = 0;
    for (int v = 0; v < p->value_count; v++) {
        if (homes & program_bit(v))
            top = larger(top, offsets->at[v] + aligned(value_bytes(p, v, shape, kernels)));
    }
    return top;
}

void program_offsets(const struct program *p, const struct program_layout *layout, struct shape shape,
                     const struct kernels *kernels, struct program_offsets *offsets)
{
    offsets->saved = 0;
    for (int i = 0; i < layout->order_count; i++) {
        int v = layout->order[i];
        offsets->at[v] = program_top(p, offsets, layout->below[v], shape, kernels);
        if (layout->memory[v] == PROGRAM_SAVED)
            offsets->saved = program_top(p, offsets, program_bit(v), shape, kernels);
    }
}

/* ---- calls ---- */

static void *at(void *base, int64_t offset)
{
    return base ? (char *)base + offset : NULL;
}

/* The address of a value. */
static void *value_address(const struct program *p, const struct program_layout *layout,
                           const struct program_offsets *offsets, const struct layer_context *x, int value)
{
    int home = layout->home[value];
    switch ((enum program_memory)layout->memory[home]) {
    case PROGRAM_INPUT:
        return (void *)(uintptr_t)x->in[p->values[home].source];
    case PROGRAM_OUTPUT:
        return x->out;
    case PROGRAM_SAVED:
        return at(x->saved, offsets->at[home]);
    case PROGRAM_WORK:
        return at(x->work, offsets->at[home]);
    case PROGRAM_NOWHERE:
        break;
    }
    return NULL;
}

static void *gradient_address(const struct program *p, const struct program_offsets *offsets,
                              const struct layer_context *x, int value)
{
    int home = p->backward.home[value];
    switch ((enum program_memory)p->backward.memory[home]) {
    case PROGRAM_INPUT:
        return x->din[p->values[home].source];
    case PROGRAM_OUTPUT:
        return (void *)(uintptr_t)x->dout; /* a backward may use it up */
    case PROGRAM_WORK:
        return at(x->work, offsets->at[home]);
    case PROGRAM_SAVED:
    case PROGRAM_NOWHERE:
        break;
    }
    return NULL;
}

/* A call without addresses: enough for sizes. */
static struct operation_call call_shape(const struct program *p, const struct program_step *step,
                                        const struct layer_context *x)
{
    const int rows_of = step->in_count ? step->in[0] : step->out; /* an embedding reads no value */
    struct operation_call c = {
        .context = x,
        .settings = &step->settings,
        .rows = (int)program_rows(p, rows_of, x->shape),
        .width = step->out >= 0 ? (int)p->values[step->out].width : 0,
        .evaluates = x->evaluates || x->mode == LAYER_EVAL,
    };
    for (int i = 0; i < step->in_count; i++)
        c.in_width[i] = (int)p->values[step->in[i]].width;
    return c;
}

static struct operation_call call_values(const struct program *p, const struct program_layout *layout,
                                         const struct program_offsets *offsets,
                                         const struct program_step *step, const struct layer_context *x)
{
    struct operation_call c = call_shape(p, step, x);
    for (int i = 0; i < step->in_count; i++)
        c.in[i] = value_address(p, layout, offsets, x, step->in[i]);
    for (int i = 0; i < step->statistic_count; i++)
        c.statistics[i] = value_address(p, layout, offsets, x, step->statistics[i]);
    for (int i = 0; i < OPERATION_PARAMS; i++)
        c.weight[i] = step->param[i] >= 0 ? x->weight[step->param[i]] : NULL;
    c.out = step->out >= 0 ? value_address(p, layout, offsets, x, step->out) : NULL;
    return c;
}

/* Bytes of a step's own scratch memory. Room follows for input gradients that
 * no step wants but the operation forms. */
static int64_t scratch_bytes(const struct operation_call *c, const struct operation *op, bool backward)
{
    return op->work ? aligned((int64_t)op->work(c, backward)) : 0;
}

static int64_t unwanted_bytes(const struct program *p, const struct program_step *step,
                              const struct operation_call *c, int element)
{
    int64_t bytes = 0;
    for (int i = 0; step->op->whole && i < step->in_count; i++) {
        if (p->values[step->in[i]].source >= 0)
            bytes += aligned((int64_t)c->rows * c->in_width[i] * element);
    }
    return bytes;
}

/* ---- sizes ---- */

/* Work memory of a walk over the steps: values and the scratch memory above them. */
static int64_t walk_work(const struct program *p, const struct program_layout *layout,
                         const struct layer_context *x, bool backward, struct program_offsets *offsets)
{
    const int element = dtype_size(x->kernels->value);
    program_offsets(p, layout, x->shape, x->kernels, offsets);
    int64_t work = 0;
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        if (x->mode == LAYER_RECOMPUTE && !step->needed)
            continue;
        const struct operation_call c = call_shape(p, step, x);
        int64_t scratch = scratch_bytes(&c, step->op, backward);
        if (backward)
            scratch += unwanted_bytes(p, step, &c, element);
        work = larger(work, program_top(p, offsets, layout->alive[s], x->shape, x->kernels) + scratch);
    }
    return work;
}

static void program_chunked_sizes(const void *config, struct shape max, enum dtype dtype,
                                  enum layer_mode mode, const struct kernels *kernels, int64_t chunk_bytes,
                                  struct layer_sizes *sizes)
{
    const struct program *p = config;
    const struct layer_context x = {
        .kernels = kernels, .shape = max, .mode = mode, .chunk_bytes = chunk_bytes};
    struct program_offsets train, other;
    *sizes = (struct layer_sizes){0};
    if (p->result >= 0)
        sizes->out = program_rows(p, p->result, max) * p->values[p->result].width * dtype_size(dtype);
    if (mode == LAYER_EVAL) {
        sizes->work = walk_work(p, &p->eval, &x, false, &other);
    } else {
        sizes->work = walk_work(p, &p->train, &x, false, &train);
        sizes->saved = train.saved;
    }
    if (mode == LAYER_TRAIN)
        sizes->work = larger(sizes->work, walk_work(p, &p->backward, &x, true, &other));
    for (int s = 0; s < p->step_count; s++) {
        const struct operation_call c = call_shape(p, &p->steps[s], &x);
        if (p->steps[s].op->flops)
            sizes->forward_flops += p->steps[s].op->flops(&c);
    }
}

static void program_sizes(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                          const struct kernels *kernels, struct layer_sizes *sizes)
{
    program_chunked_sizes(config, max, dtype, mode, kernels, 0, sizes);
}

/* ---- forward ---- */

static bool ranges_meet(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second + (uintptr_t)b_bytes && second < first + (uintptr_t)a_bytes;
}

/* Runs a product and the activation of its result as one call; false: they need two calls. The activation's
 * result is then formed a step earlier, and may lie where the product's input was no longer needed. */
static bool forward_pair(const struct program *p, const struct program_layout *layout,
                         const struct program_offsets *offsets, int s, const struct layer_context *x)
{
    const struct program_step *linear = &p->steps[s], *activation = linear + 1;
    const int64_t element = dtype_size(x->kernels->value);
    if (!x->kernels->linear_activation_forward || x->capture || s + 1 >= p->step_count ||
        linear->op != &operation_linear || activation->op != &operation_activation ||
        activation->in[0] != linear->out || (x->mode == LAYER_RECOMPUTE && !activation->needed))
        return false;
    const struct operation_call l = call_values(p, layout, offsets, linear, x);
    const struct operation_call a = call_values(p, layout, offsets, activation, x);
    if (ranges_meet(a.out, element * a.rows * a.width, l.in[0], element * l.rows * l.in_width[0]))
        return false;
    x->kernels->linear_activation_forward(a.out, a.out == l.out ? NULL : l.out, l.in[0], l.weight[0],
                                          l.weight[1], a.settings->kind, l.rows, l.in_width[0], l.width,
                                          x->stream);
    return true;
}

/* Runs an addition and the norm of its sum as one call, which reads the sum while it is there; false: they
 * need two calls. As above, the norm's result is formed a step earlier: it may lie where all of an addend
 * does, or where none of it does, as its statistics have to.
 *
 * A layer's last sum is normalised by the next layer, in a call of its own. The plan knows layers' results
 * alone: for one call over the border it would have to hand both addends on, and keep both until then. */
static bool forward_normalised(const struct program *p, const struct program_layout *layout,
                               const struct program_offsets *offsets, int s, const struct layer_context *x)
{
    const struct program_step *add = &p->steps[s], *norm = add + 1;
    if (x->capture || s + 1 >= p->step_count || add->op != &operation_add ||
        (norm->op != &operation_layer_norm && norm->op != &operation_rms_norm) || norm->in[0] != add->out ||
        (x->mode == LAYER_RECOMPUTE && !norm->needed))
        return false;
    const struct operation_call a = call_values(p, layout, offsets, add, x);
    struct operation_call n = call_values(p, layout, offsets, norm, x);
    const int64_t bytes = (int64_t)dtype_size(x->kernels->value) * a.rows * a.width;
    for (int i = 0; i < 2; i++) {
        if (n.out != a.in[i] && ranges_meet(n.out, bytes, a.in[i], bytes))
            return false;
        for (int j = 0; j < norm->statistic_count; j++)
            if (ranges_meet(n.statistics[j], value_bytes(p, norm->statistics[j], x->shape, x->kernels),
                            a.in[i], bytes))
                return false;
    }
    n.addend[0] = a.in[0], n.addend[1] = a.in[1];
    norm->op->forward(&n);
    return true;
}

static void program_forward(const void *config, const struct layer_context *x)
{
    const struct program *p = config;
    const struct program_layout *layout = x->mode == LAYER_EVAL ? &p->eval : &p->train;
    struct program_offsets offsets;
    program_offsets(p, layout, x->shape, x->kernels, &offsets);
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        if (x->mode == LAYER_RECOMPUTE && !step->needed)
            continue; /* the output is still there */
        if (forward_pair(p, layout, &offsets, s, x) || forward_normalised(p, layout, &offsets, s, x)) {
            s++;
            continue;
        }
        struct operation_call c = call_values(p, layout, &offsets, step, x);
        c.work = at(x->work, program_top(p, &offsets, layout->alive[s], x->shape, x->kernels));
        step->op->forward(&c);
        for (const struct layer_capture *capture = x->capture; capture; capture = capture->next)
            if (step->out >= 0 && step->out == capture->value)
                operation_copy_out(x, capture->out, c.out, capture->rows * c.width);
    }
}

void program_logits(const struct program *p, const struct layer_context *x, void *logits)
{
    int size = dtype_size(x->kernels->value), T = x->shape.T;
    struct program_offsets offsets;
    program_offsets(p, &p->eval, x->shape, x->kernels, &offsets);
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        struct operation_call c = call_values(p, &p->eval, &offsets, step, x);
        c.work = at(x->work, program_top(p, &offsets, p->eval.alive[s], x->shape, x->kernels));
        if (!step->op->loss) {
            step->op->forward(&c);
            continue;
        }
        int C = c.in_width[0], V = (int)step->settings.vocabulary;
        for (int b = 0; b < x->shape.B; b++)
            x->kernels->linear_forward((char *)logits + (int64_t)b * V * size,
                                       (const char *)c.in[0] + ((int64_t)b * T + T - 1) * C * size,
                                       c.weight[0], c.weight[1], 1, C, V, V, x->stream);
        if (step->settings.cap > 0)
            head_cap(x->kernels, logits, NULL, step->settings.cap, (int64_t)x->shape.B * V, x->stream);
    }
}

/* ---- backward ---- */

/* The values whose gradients lead to something that is wanted. */
static program_set wanted(const struct program *p, const struct layer_context *x, unsigned parts)
{
    program_set set = 0;
    for (int v = 0; v < p->value_count; v++) {
        if (p->values[v].source >= 0 && x->din[p->values[v].source] && (parts & LAYER_INPUT))
            set |= program_bit(v);
    }
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        bool want = false;
        for (int i = 0; i < step->in_count; i++)
            want |= (set & program_bit(step->in[i])) != 0;
        for (int i = 0; i < OPERATION_PARAMS; i++)
            want |= step->param[i] >= 0 && (parts & LAYER_WEIGHT) && x->grad[step->param[i]];
        if (want && step->out >= 0)
            set |= program_bit(step->out);
    }
    return set;
}

static void add_gradients(const struct program *p, const struct program_offsets *offsets,
                          const struct program_step *step, const struct layer_context *x, unsigned parts,
                          program_set wants, struct operation_call *c)
{
    char *spare = (char *)c->work + scratch_bytes(c, step->op, true);
    for (int i = 0; i < step->in_count; i++) {
        int v = step->in[i], source = p->values[v].source;
        c->add[i] = source >= 0 && !step->add[i] ? x->din_beta[source] : step->add[i];
        if ((wants & program_bit(v)) || (step->op->whole && source < 0)) {
            c->din[i] = gradient_address(p, offsets, x, v);
        } else if (step->op->whole) {
            c->din[i] = spare;
            c->add[i] = 0;
            spare += aligned((int64_t)c->rows * c->in_width[i] * dtype_size(x->kernels->value));
        }
    }
    for (int i = 0; i < OPERATION_PARAMS; i++) {
        int param = step->param[i];
        if (param < 0 || !(parts & LAYER_WEIGHT))
            continue;
        c->dweight[i] = x->grad[param];
        c->weight_add[i] = step->weight_add[i] || x->grad_beta[param];
    }
}

/* Runs the backward of a product whose input is an activation's result that no other step reads. The call
 * goes on to the gradient of the activation's input, which takes the place of the result's gradient; and,
 * where that input is a product's result alone, to the gradient of that product's bias. */
static bool backward_pair(const struct program *p, const struct program_offsets *values,
                          const struct program_offsets *gradients, int s, const struct layer_context *x,
                          unsigned parts, struct operation_call *c)
{
    const struct program_step *linear = &p->steps[s], *activation = linear - 1;
    if (!x->kernels->linear_backward_activation || s < 1 || linear->op != &operation_linear ||
        activation->op != &operation_activation || linear->in[0] != activation->out || !c->din[0])
        return false;
    const int before = activation->in[0];
    if (p->values[before].source >= 0 || linear->add[0] || activation->add[0] ||
        gradient_address(p, gradients, x, before) != c->din[0])
        return false;
    c->before = value_address(p, &p->train, values, x, before);
    c->before_kind = activation->settings.kind;
    const struct program_step *biased = activation - 1;
    if (s < 2 || biased->op != &operation_linear || biased->out != before)
        return true;
    struct operation_call earlier = {0};
    add_gradients(p, gradients, biased, x, parts, 0, &earlier);
    c->before_bias = earlier.dweight[1];
    c->before_bias_add = earlier.weight_add[1];
    return true;
}

static void program_backward(const void *config, const struct layer_context *x, unsigned parts)
{
    const struct program *p = config;
    program_set wants = wanted(p, x, parts);
    struct program_offsets values, gradients;
    program_offsets(p, &p->train, x->shape, x->kernels, &values);
    program_offsets(p, &p->backward, x->shape, x->kernels, &gradients);
    bool has_bias = false; /* the gradient of the step's bias is formed already */
    for (int s = p->step_count - 1; s >= 0; s--) {
        const struct program_step *step = &p->steps[s];
        if (!step->op->loss && !(wants & program_bit(step->out)))
            continue;
        struct operation_call c = call_values(p, &p->train, &values, step, x);
        c.work = at(x->work, program_top(p, &gradients, p->backward.alive[s], x->shape, x->kernels));
        if (step->out >= 0)
            c.dout = gradient_address(p, &gradients, x, step->out);
        add_gradients(p, &gradients, step, x, parts, wants, &c);
        c.dweight[1] = has_bias ? NULL : c.dweight[1];
        const bool pair = backward_pair(p, &values, &gradients, s, x, parts, &c);
        step->op->backward(&c);
        has_bias = c.before_bias;
        s -= pair;
    }
}

const struct layer_ops program_ops = {"program", program_sizes, program_forward, program_backward,
                                      program_chunked_sizes};

static bool has_kernel(const struct kernels *kernels, const struct operation *op)
{
    void (*function)(void) = NULL;
    memcpy(&function, (const char *)kernels + op->kernel, sizeof function);
    return !op->kernel || function;
}

int program_kernels_check(const struct model *model, const struct kernels *kernels, struct muster_error *err)
{
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        for (int s = 0; model->layers[l].ops == &program_ops && s < p->step_count; s++)
            if (!has_kernel(kernels, p->steps[s].op))
                return error_set(err, MUSTER_E_UNSUPPORTED,
                                 "%s: layer %s: %s is not built for this device (%s); train it with "
                                 "training.device: cpu",
                                 model->name, model->layers[l].name, p->steps[s].op->name, kernels->name);
    }
    return 0;
}
