/* program_step.c - the operations as a page writes them: their shapes are checked, and each becomes a step.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/model/program_internal.h"

/* "fc" and ".weight" */
static int named_parameter(struct writer *w, const char *name, const char *part, int64_t rows,
                           int64_t columns, enum param_init init, double std)
{
    char full[MODEL_NAME_LIMIT];
    if (snprintf(full, sizeof full, "%s%s", name, part) >= (int)sizeof full)
        return writer_fail(w, MUSTER_E_LIMIT, "%s%s is longer than %d characters", name, part,
                           MODEL_NAME_LIMIT - 1);
    return program_parameter(w, full, rows, columns, init, std);
}

/* ---- steps ---- */

bool program_step_fits(struct writer *w, const struct operation *op, const int *in, int in_count)
{
    if (!program_is_open(w))
        return false;
    const struct program *p = w->program;
    if (p->step_count == PROGRAM_STEPS)
        return !writer_fail(w, MUSTER_E_LIMIT, "it has more than %d operations; divide it into two layers",
                            PROGRAM_STEPS);
    for (int i = 0; i < in_count; i++) {
        if (in[i] < 0 || in[i] >= p->value_count)
            return !writer_fail(w, MUSTER_E_INVALID, "%s reads value %d; the layer has %d so far", op->name,
                                in[i], p->value_count);
        if (op->sequences && p->values[in[i]].sample)
            return !writer_fail(w, MUSTER_E_INVALID,
                                "%s reads neighbouring positions, and its value has a row for each "
                                "sample",
                                op->name);
        if (p->values[in[i]].sample != p->values[in[0]].sample)
            return !writer_fail(
                w, MUSTER_E_INVALID,
                "%s reads a value with a row for each sample and a value with a row for each position",
                op->name);
        for (int j = 0; op->whole && j < i; j++) {
            if (in[j] == in[i])
                return !writer_fail(w, MUSTER_E_INVALID, "%s reads one value twice", op->name);
        }
    }
    return true;
}

static int64_t width_of(const struct writer *w, int value)
{
    return w->program->values[value].width;
}

int program_step_add(struct writer *w, const struct operation *op, const struct operation_settings *settings,
                     const int *in, int in_count, int weight, int bias, int64_t width,
                     const int64_t statistics[OPERATION_STATISTICS])
{
    struct program *p = w->program;
    struct program_step *step = &p->steps[p->step_count];
    const bool sample = op->pools || (in_count && p->values[in[0]].sample);
    *step = (struct program_step){.op = op, .settings = *settings, .in_count = in_count, .out = -1};
    for (int i = 0; i < OPERATION_PARAMS; i++)
        step->param[i] = -1;
    step->param[0] = weight < 0 ? -1 : program_use(w, weight);
    step->param[1] = bias < 0 ? -1 : program_use(w, bias);
    for (int i = 0; i < in_count; i++)
        step->in[i] = in[i];
    if (!op->loss)
        step->out = program_value(w, width, sample, -1, p->step_count);
    for (int i = 0; i < OPERATION_STATISTICS && statistics && statistics[i]; i++) {
        const int value = program_value(w, statistics[i], sample, -1, p->step_count);
        if (value >= 0)
            p->values[value].statistic = true;
        step->statistics[step->statistic_count++] = value;
    }
    if (w->error.code)
        return -1;
    for (int i = 0; i < in_count; i++)
        p->values[in[i]].last_use = p->step_count;
    p->step_count++;
    return step->out;
}

/* Checks that a parameter has the shape that the operation needs; columns 0: one dimension. */
static bool shaped(struct writer *w, const struct operation *op, int param, int64_t rows, int64_t columns)
{
    if (w->error.code)
        return false;
    if (param < 0 || param >= w->model->param_count)
        return !writer_fail(w, MUSTER_E_INVALID, "%s uses parameter %d; the model has %d so far", op->name,
                            param, w->model->param_count);
    const struct param_desc *desc = &w->model->params[param];
    int64_t its_columns = desc->ndim > 1 ? desc->dim[1] : 0;
    if (desc->ndim > 2 || its_columns != columns || (rows >= 0 && desc->dim[0] != rows))
        return !writer_fail(w, MUSTER_E_INVALID, "%s uses %s of (%lld, %lld), but needs (%lld, %lld)",
                            op->name, desc->name, (long long)desc->dim[0], (long long)its_columns,
                            (long long)(rows >= 0 ? rows : desc->dim[0]), (long long)columns);
    return true;
}

/* ---- products and norms ---- */

int program_linear_by(struct writer *w, int in, int weight, int bias)
{
    const struct operation *op = &operation_linear;
    if (!program_step_fits(w, op, &in, 1) || !shaped(w, op, weight, -1, width_of(w, in)))
        return -1;
    int64_t width = w->model->params[weight].dim[0];
    if (bias >= 0 && !shaped(w, op, bias, width, 0))
        return -1;
    return program_step_add(w, op, &(struct operation_settings){0}, &in, 1, weight, bias, width, NULL);
}

/* "self_attn.q_proj" in the open layer: the targets that name it, in bits. */
static uint32_t adapter_targets(struct writer *w, const char *name)
{
    char module[3 * MODEL_NAME_LIMIT];
    if (!w->lora.rank)
        return 0;
    (void)snprintf(module, sizeof module, "%s%s%s", w->around, w->prefix, name); /* a cut name has failed */
    (void)snprintf(w->modules[*w->modules[0] != '\0'], sizeof w->modules[0], "%.*s",
                   (int)sizeof w->modules[0] - 1, module); /* for a message */
    return lora_targets_of(&w->lora, module);
}

static int adapter_param(struct writer *w, const char *name, enum param_adapter adapter, int weight,
                         int64_t rows, int64_t columns)
{
    const bool first = adapter == PARAM_LORA_A;
    /* As PEFT does: A as torch.nn.Linear (kaiming_uniform_ with a = sqrt(5)), B 0, so that nothing changes.
     */
    int param =
        named_parameter(w, name, first ? ".lora_A.weight" : ".lora_B.weight", rows, columns,
                        first ? PARAM_INIT_UNIFORM : PARAM_INIT_ZERO, first ? 1 / sqrt((double)columns) : 0);
    if (param >= 0) {
        w->model->params[param].adapter = adapter;
        w->model->params[param].adapts = weight;
    }
    return param;
}

/* base + (alpha / rank) dropout(in) A^T B^T; the factor meets the narrow value. */
static int adapted(struct writer *w, int in, int base, int weight, const char *name)
{
    const int rank = w->lora.rank;
    const int64_t width = w->model->params[weight].dim[0];
    int a = adapter_param(w, name, PARAM_LORA_A, weight, rank, width_of(w, in));
    int b = a < 0 ? -1 : adapter_param(w, name, PARAM_LORA_B, weight, width, rank);
    if (b < 0)
        return -1;
    int h = w->lora.dropout > 0 ? program_dropout(w, in, w->lora.dropout) : in;
    h = program_scale(w, program_linear_by(w, h, a, -1), lora_scale(&w->lora));
    return program_add(w, base, program_linear_by(w, h, b, -1));
}

int program_linear(struct writer *w, int in, int64_t width, const char *name, bool bias, double std)
{
    if (!program_step_fits(w, &operation_linear, &in, 1))
        return -1;
    int weight = named_parameter(w, name, ".weight", width, width_of(w, in), PARAM_INIT_NORMAL, std);
    int offset = bias ? named_parameter(w, name, ".bias", width, 0, PARAM_INIT_ZERO, 0) : -1;
    int base = program_linear_by(w, in, weight, offset);
    const uint32_t targets = base < 0 ? 0 : adapter_targets(w, name);
    if (!targets)
        return base;
    w->targets_met |= targets;
    return adapted(w, in, base, weight, name);
}

int program_layer_norm_by(struct writer *w, int in, int weight, int bias, double epsilon)
{
    const struct operation *op = &operation_layer_norm;
    if (!program_step_fits(w, op, &in, 1) || !shaped(w, op, weight, width_of(w, in), 0) ||
        (bias >= 0 && !shaped(w, op, bias, width_of(w, in), 0)))
        return -1;
    return program_step_add(w, op, &(struct operation_settings){.epsilon = epsilon}, &in, 1, weight, bias,
                            width_of(w, in), (int64_t[]){1, 1}); /* mean, 1/deviation */
}

int program_layer_norm(struct writer *w, int in, const char *name, double epsilon)
{
    if (!program_step_fits(w, &operation_layer_norm, &in, 1))
        return -1;
    int weight = named_parameter(w, name, ".weight", width_of(w, in), 0, PARAM_INIT_ONE, 0);
    int bias = named_parameter(w, name, ".bias", width_of(w, in), 0, PARAM_INIT_ZERO, 0);
    return program_layer_norm_by(w, in, weight, bias, epsilon);
}

int program_layer_norm_plain(struct writer *w, int in, const char *name, double epsilon)
{
    if (!program_step_fits(w, &operation_layer_norm, &in, 1))
        return -1;
    int weight = named_parameter(w, name, ".weight", width_of(w, in), 0, PARAM_INIT_ONE, 0);
    return program_layer_norm_by(w, in, weight, -1, epsilon);
}

int program_rms_norm_by(struct writer *w, int in, int weight, double epsilon)
{
    const struct operation *op = &operation_rms_norm;
    if (!program_step_fits(w, op, &in, 1) || !shaped(w, op, weight, width_of(w, in), 0))
        return -1;
    return program_step_add(w, op, &(struct operation_settings){.epsilon = epsilon}, &in, 1, weight, -1,
                            width_of(w, in), (int64_t[]){1, 0});
}

int program_rms_norm(struct writer *w, int in, const char *name, double epsilon)
{
    if (!program_step_fits(w, &operation_rms_norm, &in, 1))
        return -1;
    return program_rms_norm_by(
        w, in, named_parameter(w, name, ".weight", width_of(w, in), 0, PARAM_INIT_ONE, 0), epsilon);
}

int program_rms_norm_of(struct writer *w, int in, const char *name, int parts, double epsilon, double offset)
{
    const struct operation *op = &operation_rms_norm;
    if (!program_step_fits(w, op, &in, 1))
        return -1;
    const int64_t width = width_of(w, in);
    if (parts < 1 || width % parts)
        return writer_fail(w, MUSTER_E_INVALID, "%s: %lld elements are not %d equal parts", op->name,
                           (long long)width, parts);
    int weight = named_parameter(w, name, ".weight", width / parts, 0,
                                 offset == 1 ? PARAM_INIT_ZERO : PARAM_INIT_ONE, 0);
    if (weight < 0)
        return -1;
    const struct operation_settings settings = {.epsilon = epsilon, .offset = offset, .heads = parts};
    return program_step_add(w, op, &settings, &in, 1, weight, -1, width, (int64_t[]){parts, 0});
}

/* ---- positions and attention ---- */

/* A copy that the model owns, as long as it lives. */
static const double *kept_numbers(struct writer *w, const double *values, size_t count)
{
    struct model_numbers *kept = mem_calloc(1, sizeof *kept + count * sizeof *values);
    if (!kept) {
        (void)writer_fail(w, MUSTER_E_NOMEM, "no memory for %zu numbers", count);
        return NULL;
    }
    memcpy(kept->values, values, count * sizeof *values);
    kept->next = w->model->numbers;
    w->model->numbers = kept;
    return kept->values;
}

int program_rotary(struct writer *w, int in, int heads, const struct rotary *rotary)
{
    const struct operation *op = &operation_rotary;
    if (!program_step_fits(w, op, &in, 1))
        return -1;
    const int64_t head = heads > 0 && width_of(w, in) % heads == 0 ? width_of(w, in) / heads : 1;
    if (rotary->size > 0 && (rotary->size % 2 || rotary->size > head))
        return writer_fail(w, MUSTER_E_INVALID,
                           "rotary turns the first %d elements of heads of %lld; it may be an even number of "
                           "them",
                           rotary->size, (long long)head);
    if (rotary->size <= 0 && head % 2)
        return writer_fail(
            w, MUSTER_E_INVALID,
            "rotary turns pairs of elements of each head, and %lld elements are not %d heads of "
            "an even size",
            (long long)width_of(w, in), heads);
    struct operation_settings settings = {.heads = heads, .rotary = *rotary};
    if (rotary->kind == ROTARY_LISTED &&
        !(settings.rotary.lists = kept_numbers(w, rotary->lists, (size_t)rotary_size(rotary, (int)head))))
        return -1;
    return program_step_add(w, op, &settings, &in, 1, -1, -1, width_of(w, in), NULL);
}

/* q is `heads` heads wide, k and v kv_heads heads of the same size. */
static bool heads_fit(struct writer *w, const struct operation *op, int64_t q, int64_t k, int64_t v,
                      int heads, int kv_heads)
{
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return !writer_fail(w, MUSTER_E_INVALID, "%s has %d heads, which is not a multiple of %d KV heads",
                            op->name, heads, kv_heads);
    if (q % heads || k != q / heads * kv_heads || v != k)
        return !writer_fail(
            w, MUSTER_E_INVALID,
            "%s of %d heads and %d KV heads has q, k and v of %lld, %lld and %lld elements; k and "
            "v must be %d heads of the size of q's",
            op->name, heads, kv_heads, (long long)q, (long long)k, (long long)v, kv_heads);
    return true;
}

int program_attention_of(struct writer *w, int q, int k, int v, const struct attention_form *form)
{
    const struct operation *op = &operation_attention;
    const int in[] = {q, k, v};
    if (!program_step_fits(w, op, in, 3) ||
        !heads_fit(w, op, width_of(w, q), width_of(w, k), width_of(w, v), form->heads, form->kv_heads))
        return -1;
    if (form->window < 0 || !(form->cap >= 0) || !(form->scale >= 0))
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s has a window of %d, a cap of %g and a scale of %g; they are 0 or more",
                           op->name, form->window, form->cap, form->scale);
    const struct operation_settings settings = {.heads = form->heads,
                                                .kv_heads = form->kv_heads,
                                                .causal = form->causal,
                                                .window = form->window,
                                                .scale = form->scale,
                                                .cap = form->cap};
    return program_step_add(w, op, &settings, in, 3, -1, -1, width_of(w, q), (int64_t[]){form->heads, 0});
}

int program_attention(struct writer *w, int q, int k, int v, int heads, int kv_heads, bool causal)
{
    return program_attention_of(
        w, q, k, v, &(struct attention_form){.heads = heads, .kv_heads = kv_heads, .causal = causal});
}

int program_attention_packed(struct writer *w, int qkv, int heads, int kv_heads, bool causal)
{
    const struct operation *op = &operation_attention_packed;
    if (!program_step_fits(w, op, &qkv, 1))
        return -1;
    int64_t all = (int64_t)heads + 2 * (int64_t)kv_heads, head = all > 0 ? width_of(w, qkv) / all : 0;
    if (heads < 1 || kv_heads < 1 || head * all != width_of(w, qkv))
        return writer_fail(w, MUSTER_E_INVALID, "%s: %lld elements are not %d + 2 x %d heads of one size",
                           op->name, (long long)width_of(w, qkv), heads, kv_heads);
    if (!heads_fit(w, op, head * heads, head * kv_heads, head * kv_heads, heads, kv_heads))
        return -1;
    const struct operation_settings settings = {.heads = heads, .kv_heads = kv_heads, .causal = causal};
    return program_step_add(w, op, &settings, &qkv, 1, -1, -1, head * heads, (int64_t[]){heads, 0});
}

/* ---- element by element ---- */

int program_activation_kind(const char *name)
{
    static const char *const names[ACTIVATION_KINDS] = {
        [ACTIVATION_GELU_TANH] = "gelu_tanh", [ACTIVATION_GELU_ERF] = "gelu",
        [ACTIVATION_SILU] = "silu",           [ACTIVATION_RELU] = "relu",
        [ACTIVATION_TANH] = "tanh",           [ACTIVATION_SIGMOID] = "sigmoid"};
    for (int i = 0; name && i < ACTIVATION_KINDS; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

int program_activation(struct writer *w, int in, enum activation_kind kind)
{
    if (!program_step_fits(w, &operation_activation, &in, 1))
        return -1;
    if ((unsigned)kind >= ACTIVATION_KINDS)
        return writer_fail(w, MUSTER_E_INVALID, "activation %d: there are 0 to %d", (int)kind,
                           ACTIVATION_KINDS - 1);
    return program_step_add(w, &operation_activation, &(struct operation_settings){.kind = (int)kind}, &in, 1,
                            -1, -1, width_of(w, in), NULL);
}

static int pair_add(struct writer *w, const struct operation *op, int a, int b, int kind)
{
    const int in[] = {a, b};
    if (!program_step_fits(w, op, in, 2))
        return -1;
    if (width_of(w, a) != width_of(w, b))
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s reads values of %lld and %lld elements; they must be equal", op->name,
                           (long long)width_of(w, a), (long long)width_of(w, b));
    return program_step_add(w, op, &(struct operation_settings){.kind = kind}, in, 2, -1, -1, width_of(w, a),
                            NULL);
}

int program_gated(struct writer *w, int gate, int up, enum activation_kind kind)
{
    if (program_is_open(w) && (unsigned)kind >= ACTIVATION_KINDS)
        return writer_fail(w, MUSTER_E_INVALID, "gated %d: there are 0 to %d", (int)kind,
                           ACTIVATION_KINDS - 1);
    return pair_add(w, &operation_gated, gate, up, (int)kind);
}

int program_swiglu(struct writer *w, int gate, int up)
{
    return program_gated(w, gate, up, ACTIVATION_SILU);
}

int program_slice(struct writer *w, int in, int groups, int64_t first, int64_t width)
{
    const struct operation *op = &operation_slice;
    if (!program_step_fits(w, op, &in, 1))
        return -1;
    const int64_t row = groups > 0 && width_of(w, in) % groups == 0 ? width_of(w, in) / groups : 0;
    if (first < 0 || width < 1 || first > row - width)
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s takes %lld elements from %lld on of each of %d equal parts of %lld elements",
                           op->name, (long long)width, (long long)first, groups, (long long)width_of(w, in));
    const struct operation_settings settings = {.heads = groups, .first = (int)first};
    return program_step_add(w, op, &settings, &in, 1, -1, -1, groups * width, NULL);
}

int program_add(struct writer *w, int a, int b)
{
    return pair_add(w, &operation_add, a, b, 0);
}

int program_scale(struct writer *w, int in, double factor)
{
    if (!program_step_fits(w, &operation_scale, &in, 1))
        return -1;
    if (!isfinite(factor))
        return writer_fail(w, MUSTER_E_INVALID, "scale has the factor %g; it has to be finite", factor);
    return program_step_add(w, &operation_scale, &(struct operation_settings){.factor = factor}, &in, 1, -1,
                            -1, width_of(w, in), NULL);
}

int program_dropout(struct writer *w, int in, double probability)
{
    if (!program_step_fits(w, &operation_dropout, &in, 1))
        return -1;
    if (!(probability >= 0 && probability < 1))
        return writer_fail(w, MUSTER_E_INVALID, "dropout has the probability %g; it may be from 0 to below 1",
                           probability);
    const struct operation_settings settings = {.probability = probability, .site = (uint32_t)w->sites++};
    return program_step_add(w, &operation_dropout, &settings, &in, 1, -1, -1, width_of(w, in), NULL);
}

int program_dropped(struct writer *w, int in, double probability)
{
    return probability == 0 ? in : program_dropout(w, in, probability);
}

/* ---- both ends of a model ---- */

const struct batch_input *program_batch_input(struct writer *w, const struct operation *op, int input)
{
    const struct model *model = w->model;
    if (input >= 0 && input < model->input_count)
        return &model->inputs[input];
    (void)writer_fail(w, MUSTER_E_INVALID, "%s reads input %d of the batch, which has %d", op->name, input,
                      model->input_count);
    return NULL;
}

bool program_integers(struct writer *w, const struct operation *op, int input, bool sample)
{
    const struct batch_input *desc = program_batch_input(w, op, input);
    if (!desc)
        return false;
    if (desc->dtype != DTYPE_I32 || desc->width != 1 || desc->positions == sample)
        return !writer_fail(w, MUSTER_E_INVALID, "%s reads %s of the batch, which is not one i32 a %s",
                            op->name, desc->name, sample ? "sample" : "position");
    return true;
}

static int64_t param_width(const struct writer *w, int param)
{
    bool matrix = param >= 0 && param < w->model->param_count && w->model->params[param].ndim == 2;
    return matrix ? w->model->params[param].dim[1] : 0;
}

int program_embedding(struct writer *w, int input, int table, int positions)
{
    return program_embedding_from(w, input, table, positions, 0);
}

int program_embedding_from(struct writer *w, int input, int table, int positions, int first)
{
    const struct operation *op = &operation_embedding;
    if (!program_step_fits(w, op, NULL, 0) || !program_integers(w, op, input, false))
        return -1;
    int64_t width = param_width(w, table);
    if (!shaped(w, op, table, -1, width) || (positions >= 0 && !shaped(w, op, positions, -1, width)))
        return -1;
    const struct param_desc *params = w->model->params;
    if (positions >= 0 && (first < 0 || first >= params[positions].dim[0]))
        return writer_fail(w, MUSTER_E_INVALID, "%s begins with row %d of %lld positions", op->name, first,
                           (long long)params[positions].dim[0]);
    const struct operation_settings settings = {.input = input,
                                                .first = first,
                                                .vocabulary = params[table].dim[0],
                                                .positions = positions >= 0 ? params[positions].dim[0] : 0};
    return program_step_add(w, op, &settings, NULL, 0, table, positions, width, NULL);
}

int program_values(struct writer *w, int input)
{
    const struct operation *op = &operation_values;
    const struct batch_input *desc =
        program_step_fits(w, op, NULL, 0) ? program_batch_input(w, op, input) : NULL;
    if (!desc)
        return -1;
    if (!desc->positions || (desc->dtype != DTYPE_F32 && desc->dtype != DTYPE_F64 && desc->dtype != DTYPE_U8))
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s reads %s of the batch, which is not a row of f32, f64 or u8 for each position",
                           op->name, desc->name);
    const struct operation_settings settings = {.input = input, .dtype = desc->dtype};
    return program_step_add(w, op, &settings, NULL, 0, -1, -1, desc->width, NULL);
}

void program_squared_error(struct writer *w, int in, int input)
{
    const struct operation *op = &operation_squared_error;
    const struct batch_input *desc =
        program_step_fits(w, op, &in, 1) ? program_batch_input(w, op, input) : NULL;
    if (!desc)
        return;
    if (desc->dtype != DTYPE_F32 || desc->width != width_of(w, in)) {
        (void)writer_fail(w, MUSTER_E_INVALID,
                          "%s compares rows of %lld elements with %s of the batch, which is %lld of %s",
                          op->name, (long long)width_of(w, in), desc->name, (long long)desc->width,
                          dtype_name(desc->dtype));
        return;
    }
    if (desc->positions == w->program->values[in].sample) {
        (void)writer_fail(w, MUSTER_E_INVALID,
                          "%s compares a row for each %s with %s of the batch, which has "
                          "one for each %s",
                          op->name, desc->positions ? "sample" : "position", desc->name,
                          desc->positions ? "position" : "sample");
        return;
    }
    w->model->inputs[input].absent = 0xFF; /* NaN */
    (void)program_step_add(w, op, &(struct operation_settings){.input = input}, &in, 1, -1, -1, 0, NULL);
    if (!w->error.code)
        program_close(w, -1);
}

void program_cross_entropy(struct writer *w, int in, int weight, int input)
{
    program_capped_cross_entropy(w, in, weight, input, 0);
}

void program_capped_cross_entropy(struct writer *w, int in, int weight, int input, double cap)
{
    const struct operation *op = &operation_cross_entropy;
    if (!program_step_fits(w, op, &in, 1) || !program_integers(w, op, input, w->program->values[in].sample) ||
        !shaped(w, op, weight, -1, width_of(w, in)))
        return;
    if (!(cap >= 0)) {
        (void)writer_fail(w, MUSTER_E_INVALID, "%s has a cap of %g; it is 0 or more", op->name, cap);
        return;
    }
    const struct operation_settings settings = {
        .input = input, .cap = cap, .vocabulary = w->model->params[weight].dim[0]};
    w->model->inputs[input].absent = 0xFF;
    w->model->params[weight].classes = true;
    (void)program_step_add(w, op, &settings, &in, 1, weight, -1, 0, NULL);
    if (!w->error.code)
        program_close(w, -1);
}
