/* tensor_text.c - see model_hash_internal.h. The rules are torch/_tensor_str.py's (PyTorch 2.13), names are
 * its. */
#include "runtime/hash/model_hash_internal.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PRECISION = 4, THRESHOLD = 1000, EDGE_ITEMS = 3, LINE_WIDTH = 80, VALUE_TEXT = 64 };
static const char prefix[] = "tensor(";

struct printing {
    struct buffer *out;
    const struct file_tensor *tensor;
    const float *values;
    bool summarize;
    /* _Formatter */
    bool int_mode, sci_mode;
    int max_width;
    double least, most;
};

/* ---- which elements are shown ---- */

/* The elements of dimension d that are shown: i = 0.., the index of each; false after the last. Between the
 * first and the last three stand dots. */
static bool shown(const struct printing *p, int d, int64_t i, int64_t *index)
{
    const int64_t size = p->tensor->dim[d];
    const bool cut = p->summarize && size > 2 * EDGE_ITEMS;
    *index = cut && i >= EDGE_ITEMS ? size - 2 * EDGE_ITEMS + i : i;
    return i < (cut ? 2 * EDGE_ITEMS : size);
}

static bool dots_before(const struct printing *p, int d, int64_t i)
{
    return p->summarize && p->tensor->dim[d] > 2 * EDGE_ITEMS && i == EDGE_ITEMS;
}

static void visit(struct printing *p, int d, int64_t at, void (*take)(struct printing *p, double value))
{
    int64_t index;
    if (d == p->tensor->ndim)
        take(p, (double)p->values[at]);
    for (int64_t i = 0; d < p->tensor->ndim && shown(p, d, i, &index); i++)
        visit(p, d + 1, at * p->tensor->dim[d] + index, take);
}

/* ---- one value ---- */

static void take_range(struct printing *p, double value)
{
    const double size = fabs(value);
    if (!isfinite(value) || value == 0)
        return;
    p->least = p->most == 0 || size < p->least ? size : p->least;
    p->most = size > p->most ? size : p->most;
    p->int_mode &= value == ceil(value);
}

/* Returns its length. Python's nan has no sign. */
static int format_value(const struct printing *p, double value, char text[VALUE_TEXT])
{
    if (isnan(value))
        return snprintf(text, VALUE_TEXT, "nan");
    if (p->sci_mode)
        return snprintf(text, VALUE_TEXT, "%.*e", PRECISION, value);
    if (p->int_mode)
        return snprintf(text, VALUE_TEXT, "%.0f%s", value, isinf(value) ? "" : ".");
    return snprintf(text, VALUE_TEXT, "%.*f", PRECISION, value);
}

static void take_width(struct printing *p, double value)
{
    char text[VALUE_TEXT];
    if (!isfinite(value) || value == 0)
        return;
    const int width = format_value(p, value, text);
    p->max_width = width > p->max_width ? width : p->max_width;
}

static void put_value(const struct printing *p, double value)
{
    char text[VALUE_TEXT];
    (void)format_value(p, value, text); /* fits: a float has at most 40 digits */
    (void)buffer_printf(p->out, "%*s", p->max_width, text);
}

/* ---- brackets ---- */

static void put_spaces(const struct printing *p, int count)
{
    (void)buffer_printf(p->out, "%*s", count, "");
}

static void put_vector(const struct printing *p, int d, int64_t at, int indent)
{
    const int fitting = (LINE_WIDTH - indent) / (p->max_width + 2), per_line = fitting > 1 ? fitting : 1;
    int64_t index, number = 0;
    (void)buffer_text(p->out, "[");
    for (int64_t i = 0; shown(p, d, i, &index); i++) {
        for (int dots = dots_before(p, d, i); dots >= 0; dots--, number++) {
            if (number && number % per_line == 0) {
                (void)buffer_text(p->out, ",\n");
                put_spaces(p, indent + 1);
            } else if (number) {
                (void)buffer_text(p->out, ", ");
            }
            if (dots)
                (void)buffer_text(p->out, " ...");
            else
                put_value(p, (double)p->values[at * p->tensor->dim[d] + index]);
        }
    }
    (void)buffer_text(p->out, "]");
}

static void put_slices(const struct printing *p, int d, int64_t at, int indent)
{
    const int left = p->tensor->ndim - d; /* dimensions of this slice */
    int64_t index;
    bool first = true;
    if (left == 0) {
        put_value(p, (double)p->values[at]);
        return;
    }
    if (left == 1) {
        put_vector(p, d, at, indent);
        return;
    }
    (void)buffer_text(p->out, "[");
    for (int64_t i = 0; shown(p, d, i, &index); i++)
        for (int dots = dots_before(p, d, i); dots >= 0; dots--, first = false) {
            if (!first) {
                (void)buffer_text(p->out, ",");
                for (int line = 1; line < left; line++)
                    (void)buffer_text(p->out, "\n");
                put_spaces(p, indent + 1);
            }
            if (dots)
                (void)buffer_text(p->out, "...");
            else
                put_slices(p, d + 1, at * p->tensor->dim[d] + index, indent + 1);
        }
    (void)buffer_text(p->out, "]");
}

/* A dtype that is not torch's usual one is named, on a line of its own where the last one has no room. */
static void put_dtype(const struct printing *p, size_t begin)
{
    static const char suffix[] = "dtype=torch.bfloat16";
    if (p->tensor->dtype != DTYPE_BF16 || p->out->failed)
        return;
    const char *text = p->out->data + begin, *line = strrchr(text, '\n');
    const int length = (int)strlen(text), last = line ? length - (int)(line - text) + 1 : length + 2;
    if (last + (int)strlen(suffix) + 2 > LINE_WIDTH) {
        (void)buffer_text(p->out, ",\n");
        put_spaces(p, (int)strlen(prefix));
    } else {
        (void)buffer_text(p->out, ", ");
    }
    (void)buffer_text(p->out, suffix);
}

int tensor_text(struct buffer *out, const struct file_tensor *tensor, const float *values)
{
    struct printing p = {.out = out,
                         .tensor = tensor,
                         .values = values,
                         .summarize = tensor_elements(tensor->ndim, tensor->dim) > THRESHOLD,
                         .int_mode = true,
                         .max_width = 1};
    const size_t begin = out->length;
    if (tensor->integer)
        return buffer_printf(out, "%s%.0f)", prefix, (double)values[0]);
    visit(&p, 0, 0, take_range);
    p.sci_mode = p.most > 0 && (p.most / p.least > 1000.0 || p.most > 1.0e8 || p.least < 1.0e-4);
    visit(&p, 0, 0, take_width);
    (void)buffer_text(out, prefix);
    put_slices(&p, 0, 0, (int)strlen(prefix));
    put_dtype(&p, begin);
    return buffer_text(out, ")");
}
