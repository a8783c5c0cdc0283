/* operations.c - the functions of a page that write operations. */
#include <stdio.h>
#include <string.h>

#include "runtime/model/program_internal.h"
#include "runtime/pages/page_internal.h"

/* ---- arguments ---- */

static bool writes(struct page_run *run)
{
    return run->writer.model != NULL || page_fail(run, "operations are of embedding, block and head") == 0;
}

/* The result of a function of the writer, whose error gets the statement's line. */
static int rows_result(struct page_run *run, int value, struct page_value *out)
{
    if (run->writer.error.code)
        return page_fail(run, "%s", run->writer.error.text);
    *out = (struct page_value){.kind = PAGE_ROWS, .number = value, .layer = run->writer.model->layer_count};
    return 0;
}

static int rows_of(struct page_run *run, const struct page_value *value, int *out)
{
    *out = -1;
    if (value->kind != PAGE_ROWS)
        return page_fail(run, "an operation reads rows of the layer, and its argument is none");
    if (!run->writer.model || value->layer != run->writer.model->layer_count)
        return page_fail(run,
                         "an operation reads rows of another layer; x is the result of the layer before");
    *out = (int)value->number;
    return 0;
}

static int page_name_of(struct page_run *run, const struct page_value *value, const char **out)
{
    *out = value->text;
    return value->kind == PAGE_TEXT ? 0 : page_fail(run, "the name of an operation is a text");
}

static int page_width(struct page_run *run, const struct page_value *value, int64_t *out)
{
    return page_whole(run, value, "a width", 1, 1 << 24, out);
}

static int heads_of(struct page_run *run, const struct page_value *value, int *out)
{
    *out = 0;
    int64_t heads;
    if (page_whole(run, value, "a number of heads or parts", 1, 1 << 20, &heads) < 0)
        return -1;
    *out = (int)heads;
    return 0;
}

/* fallback where it is left out. */
static int number_or(struct page_run *run, const struct page_value *value, const char *what, double fallback,
                     double *out)
{
    *out = fallback;
    if (value->kind == PAGE_NONE)
        return 0;
    if (value->kind != PAGE_NUMBER)
        return page_fail(run, "%s is no number", what);
    *out = value->number;
    return 0;
}

static int activation_of(struct page_run *run, const struct page_value *value, enum activation_kind *out)
{
    *out = ACTIVATION_KINDS;
    const int kind = value->kind == PAGE_TEXT ? program_activation_kind(value->text) : -1;
    if (kind >= 0) {
        *out = (enum activation_kind)kind;
        return 0;
    }
    return page_fail(run, "there are the activations gelu_tanh, gelu, silu, relu, tanh and sigmoid");
}

/* ---- both ends ---- */

static int weight_of(struct page_run *run, const char *name, int64_t rows, int64_t columns)
{
    char full[MODEL_NAME_LIMIT];
    if (snprintf(full, sizeof full, "%s.weight", name) >= (int)sizeof full)
        return page_fail(run, "the name %s is too long", name);
    const int param = program_parameter(&run->writer, full, rows, columns, PARAM_INIT_NORMAL, 0.02);
    return run->writer.error.code ? page_fail(run, "%s", run->writer.error.text) : param;
}

static int op_embedding(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { NAME, ROWS, WIDTH, POSITIONS, POSITION_ROWS, FIRST };
    const char *name, *positions;
    int64_t rows, width, position_rows = 0, first = 0;
    int learned = -1;
    if (!writes(run) || page_name_of(run, &arguments[NAME], &name) < 0 ||
        page_whole(run, &arguments[ROWS], "the number of tokens", 2, 1 << 24, &rows) < 0 ||
        page_width(run, &arguments[WIDTH], &width) < 0)
        return -1;
    const int table = weight_of(run, name, rows, width);
    if (table < 0)
        return -1;
    run->table = table;
    memcpy(run->table_name, run->writer.model->params[table].name, sizeof run->table_name);
    if (arguments[POSITIONS].kind != PAGE_NONE) {
        if (page_name_of(run, &arguments[POSITIONS], &positions) < 0 ||
            page_whole(run, &arguments[POSITION_ROWS], "the number of positions", 1, 1 << 24,
                       &position_rows) < 0 ||
            (arguments[FIRST].kind != PAGE_NONE &&
             page_whole(run, &arguments[FIRST], "the row of the first position", 0, position_rows - 1,
                        &first) < 0) ||
            (learned = weight_of(run, positions, position_rows, width)) < 0)
            return -1;
    }
    return rows_result(run, program_embedding_from(&run->writer, run->tokens, table, learned, (int)first),
                       out);
}

/* The types of the tokens of a text, as rows of a table. */
static int op_types(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { NAME, ROWS, WIDTH };
    const char *name;
    int64_t rows, width;
    if (!writes(run) || page_name_of(run, &arguments[NAME], &name) < 0 ||
        page_whole(run, &arguments[ROWS], "the number of types", 1, 1 << 24, &rows) < 0 ||
        page_width(run, &arguments[WIDTH], &width) < 0)
        return -1;
    const int table = weight_of(run, name, rows, width);
    if (table < 0)
        return -1;
    if (run->types < 0)
        run->types = writer_input(&run->writer, "types", DTYPE_I32, true, 1);
    return rows_result(run, program_embedding(&run->writer, run->types, table, -1), out);
}

/* The end of a classifier: a product with its bias, and the loss against the labels. */
static int op_classes(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { X, ROWS, NAME };
    const char *name;
    int x = -1;
    int64_t rows;
    char bias[MODEL_NAME_LIMIT];
    (void)out;
    if (!writes(run) || rows_of(run, &arguments[X], &x) < 0 ||
        page_whole(run, &arguments[ROWS], "the number of labels", 2, 1 << 16, &rows) < 0 ||
        page_name_of(run, &arguments[NAME], &name) < 0)
        return -1;
    if (run->labels < 0)
        return page_fail(run, "classes is the end of pages of labelled texts alone (classifier)");
    const int weight = weight_of(run, name, rows, run->writer.program->values[x].width);
    if (weight < 0)
        return -1;
    (void)snprintf(bias, sizeof bias, "%.*s.bias", (int)sizeof bias - 8, name); /* its weight's name fits */
    program_classes_by(&run->writer, x, weight,
                       program_parameter(&run->writer, bias, rows, 0, PARAM_INIT_ZERO, 0), run->labels);
    run->ended = true;
    return run->writer.error.code ? page_fail(run, "%s", run->writer.error.text) : 0;
}

/* The end: logits and their loss. */
static int op_logits(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { X, NAME, ROWS, TIED, CAP };
    const char *name;
    int x = -1, weight;
    int64_t rows;
    double cap;
    (void)out;
    if (!writes(run) || rows_of(run, &arguments[X], &x) < 0 ||
        page_name_of(run, &arguments[NAME], &name) < 0 ||
        page_whole(run, &arguments[ROWS], "the number of tokens", 2, 1 << 24, &rows) < 0 ||
        number_or(run, &arguments[CAP], "a cap", 0, &cap) < 0)
        return -1;
    if (page_is_true(&arguments[TIED])) {
        weight = run->table;
        (void)snprintf(run->tied, sizeof run->tied, "%.*s.weight", (int)sizeof run->tied - 8, name);
        if (weight < 0 || run->writer.model->params[weight].dim[0] != rows)
            return page_fail(run, "the head is tied to an embedding that does not have %lld rows",
                             (long long)rows);
    } else if ((weight = weight_of(run, name, rows, run->writer.program->values[x].width)) < 0) {
        return -1;
    }
    if (run->targets < 0)
        return page_fail(run, "a page of labelled texts (classifier) ends in classes");
    program_capped_cross_entropy(&run->writer, x, weight, run->targets, cap);
    run->ended = true;
    return run->writer.error.code ? page_fail(run, "%s", run->writer.error.text) : 0;
}

/* ---- rows into rows ---- */

/* A product gets no adapter where it is trained whole. */
static int saved_linear(struct page_run *run, int x, int64_t width, const char *name, bool bias)
{
    struct writer *w = &run->writer;
    char full[3 * MODEL_NAME_LIMIT];
    (void)snprintf(full, sizeof full, "%s%s.weight", w->prefix,
                   name); /* a longer name fails as a parameter's */
    if (!page_saves(run->of, full) || w->error.code)
        return program_linear(w, x, width, name, bias, 0.02);
    const int weight = weight_of(run, name, width, w->program->values[x].width);
    (void)snprintf(full, sizeof full, "%s.bias", name);
    return weight < 0
               ? -1
               : program_linear_by(w, x, weight,
                                   bias ? program_parameter(w, full, width, 0, PARAM_INIT_ZERO, 0) : -1);
}

static int op_linear(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { X, WIDTH, NAME, BIAS, TURNED };
    const char *name;
    int64_t width;
    int x = -1;
    if (!writes(run) || rows_of(run, &arguments[X], &x) < 0 ||
        page_width(run, &arguments[WIDTH], &width) < 0 || page_name_of(run, &arguments[NAME], &name) < 0)
        return -1;
    const int first = run->writer.model->param_count;
    const int y = saved_linear(run, x, width, name, page_is_true(&arguments[BIAS]));
    if (y >= 0 && page_is_true(&arguments[TURNED]))
        run->writer.model->params[first].file_transposed = true;
    return rows_result(run, y, out);
}

static int op_rms_norm(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { X, NAME, EPSILON, PARTS, OFFSET };
    const char *name;
    int x = -1, parts = 1;
    double epsilon, offset;
    if (!writes(run) || rows_of(run, &arguments[X], &x) < 0 ||
        page_name_of(run, &arguments[NAME], &name) < 0 ||
        number_or(run, &arguments[EPSILON], "epsilon", 0, &epsilon) < 0 ||
        (arguments[PARTS].kind != PAGE_NONE && heads_of(run, &arguments[PARTS], &parts) < 0) ||
        number_or(run, &arguments[OFFSET], "the offset", 0, &offset) < 0)
        return -1;
    return rows_result(run, program_rms_norm_of(&run->writer, x, name, parts, epsilon, offset), out);
}

static int op_layer_norm(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { X, NAME, EPSILON, BIAS };
    const char *name;
    int x = -1;
    double epsilon;
    if (!writes(run) || rows_of(run, &arguments[X], &x) < 0 ||
        page_name_of(run, &arguments[NAME], &name) < 0 ||
        number_or(run, &arguments[EPSILON], "epsilon", 0, &epsilon) < 0)
        return -1;
    const bool bias = arguments[BIAS].kind == PAGE_NONE || page_is_true(&arguments[BIAS]);
    return rows_result(run,
                       bias ? program_layer_norm(&run->writer, x, name, epsilon)
                            : program_layer_norm_plain(&run->writer, x, name, epsilon),
                       out);
}

static int op_rotary(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1, heads = 0;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0 || heads_of(run, &arguments[1], &heads) < 0)
        return -1;
    if (arguments[2].kind != PAGE_ROPE)
        return page_fail(run, "rotary(x heads rope) takes a result of rope()");
    return rows_result(run, program_rotary(&run->writer, x, heads, &run->ropes[(int)arguments[2].number]),
                       out);
}

static int op_attention(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { Q, K, V, HEADS, KV_HEADS, WINDOW, SCALE, CAP, BOTH };
    struct attention_form form = {.causal = !page_is_true(&arguments[BOTH])};
    int q = -1, k = -1, v = -1;
    int64_t window = 0;
    if (!writes(run) || rows_of(run, &arguments[Q], &q) < 0 || rows_of(run, &arguments[K], &k) < 0 ||
        rows_of(run, &arguments[V], &v) < 0 || heads_of(run, &arguments[HEADS], &form.heads) < 0 ||
        heads_of(run, &arguments[KV_HEADS], &form.kv_heads) < 0 ||
        (arguments[WINDOW].kind != PAGE_NONE &&
         page_whole(run, &arguments[WINDOW], "a window", 0, INT32_MAX, &window) < 0) ||
        number_or(run, &arguments[SCALE], "the scale", 0, &form.scale) < 0 ||
        number_or(run, &arguments[CAP], "a cap", 0, &form.cap) < 0)
        return -1;
    form.window = (int)window;
    const int y = program_attention_of(&run->writer, q, k, v, &form);
    if (run->lengths < 0 && !form.causal)
        return page_fail(run, "attention sees both sides in pages of labelled texts alone (classifier)");
    return rows_result(run, y >= 0 && !form.causal ? program_within(&run->writer, y, run->lengths) : y, out);
}

static int op_activation(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1;
    enum activation_kind kind = ACTIVATION_KINDS;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0 || activation_of(run, &arguments[1], &kind) < 0)
        return -1;
    return rows_result(run, program_activation(&run->writer, x, kind), out);
}

static int op_gated(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int gate = -1, up = -1;
    enum activation_kind kind = ACTIVATION_KINDS;
    if (!writes(run) || rows_of(run, &arguments[0], &gate) < 0 || rows_of(run, &arguments[1], &up) < 0 ||
        activation_of(run, &arguments[2], &kind) < 0)
        return -1;
    return rows_result(run, program_gated(&run->writer, gate, up, kind), out);
}

static int op_slice(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1, parts = 0;
    int64_t first, width;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0 || heads_of(run, &arguments[1], &parts) < 0 ||
        page_whole(run, &arguments[2], "the first element", 0, 1 << 24, &first) < 0 ||
        page_width(run, &arguments[3], &width) < 0)
        return -1;
    return rows_result(run, program_slice(&run->writer, x, parts, first, width), out);
}

static int op_dropout(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1;
    double probability;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0 ||
        number_or(run, &arguments[1], "the probability", 0, &probability) < 0)
        return -1;
    return rows_result(run, program_dropped(&run->writer, x, probability), out);
}

static int op_first(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0)
        return -1;
    return rows_result(run, program_first(&run->writer, x), out);
}

static int op_mean(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0)
        return -1;
    if (run->lengths < 0)
        return page_fail(run, "mean is of pages of labelled texts alone (classifier)");
    return rows_result(run, program_mean(&run->writer, x, run->lengths), out);
}

static int op_add(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int a = -1, b = -1;
    if (!writes(run) || rows_of(run, &arguments[0], &a) < 0 || rows_of(run, &arguments[1], &b) < 0)
        return -1;
    return rows_result(run, program_add(&run->writer, a, b), out);
}

/* By 1 it is the value itself. */
static int op_scale(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    int x = -1;
    double factor;
    if (!writes(run) || rows_of(run, &arguments[0], &x) < 0 ||
        number_or(run, &arguments[1], "the factor", 1, &factor) < 0)
        return -1;
    return rows_result(run, factor == 1 ? x : program_scale(&run->writer, x, factor), out);
}

const struct page_function page_operation_functions[] = {
    {"embedding", "name rows width positions? position_rows? first?", op_embedding},
    {"logits", "x name rows tied? cap?", op_logits},
    {"types", "name rows width", op_types},
    {"classes", "x rows name", op_classes},
    {"linear", "x width name bias? turned?", op_linear},
    {"rms_norm", "x name epsilon parts? offset?", op_rms_norm},
    {"layer_norm", "x name epsilon bias?", op_layer_norm},
    {"rotary", "x heads rope", op_rotary},
    {"attention", "q k v heads kv_heads window? scale? cap? both?", op_attention},
    {"activation", "x kind", op_activation},
    {"gated", "gate up kind", op_gated},
    {"slice", "x parts first width", op_slice},
    {"dropout", "x probability", op_dropout},
    {"first", "x", op_first},
    {"mean", "x", op_mean},
    {"add", "a b", op_add},
    {"scale", "x factor", op_scale},
    {NULL, NULL, NULL},
};
