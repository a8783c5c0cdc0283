/* codes.c - see codes.h. */
#include "runtime/files/codes.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* The length of the name that the tensor is a part of; 0: it holds no codes. */
static size_t coded_name(const char *name, enum coding *coding)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < CODING_COUNT; i++)
        if (!strcmp(dot + 1, coding_name((enum coding)i))) {
            *coding = (enum coding)i;
            return (size_t)(dot - name);
        }
    return 0;
}

/* The tensor named `name` + suffix; NULL: there is none. */
static const struct file_tensor *part(const struct file_tensors *tensors, const char *name,
                                      const char *suffix)
{
    const size_t length = strlen(name);
    int first = 0, end = tensors->count;
    while (first < end) {
        const int middle = first + (end - first) / 2;
        const char *other = tensors->item[middle].name;
        int order = strncmp(other, name, length);
        order = order ? order : strcmp(other + length, suffix);
        if (!order)
            return &tensors->item[middle];
        first = order < 0 ? middle + 1 : first;
        end = order > 0 ? middle : end;
    }
    return NULL;
}

static bool is_like(const struct file_tensor *t, const char *type, int ndim, int64_t rows, int64_t columns)
{
    return t && !strcmp(t->type, type) && t->ndim == ndim && t->dim[0] == rows &&
           (ndim < 2 || t->dim[1] == columns);
}

static int wrong_part(const char *path, const char *name, const char *suffix, const char *type,
                      struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID,
                     "%s: tensor %s%s is missing, or is not %s of a shape that fits the codes of %s", path,
                     name, suffix, type, name);
}

/* The meaning of the parts of `name`; codes: the part that holds them. */
static int codes_describe(const struct file_tensors *tensors, const char *path, const char *name,
                          const struct file_tensor *codes, enum coding coding, struct file_tensor *out,
                          struct muster_error *err)
{
    const bool int4 = coding == CODING_INT4;
    const struct file_tensor *scale = part(tensors, name, CODES_SCALE),
                             *zero = part(tensors, name, CODES_ZERO);
    if (codes->ndim == 2 && codes->dim[1] > INT64_MAX / 2) /* no rows */
        return wrong_part(path, name, int4 ? ".int4" : ".int8", int4 ? "U8" : "I8", err);
    const int64_t rows = codes->dim[0], columns = codes->ndim == 2 ? codes->dim[1] * (int4 ? 2 : 1) : 0;
    if (codes->ndim != 2 || strcmp(codes->type, int4 ? "U8" : "I8") != 0)
        return wrong_part(path, name, int4 ? ".int4" : ".int8", int4 ? "U8" : "I8", err);
    const int64_t groups = int4 && scale && scale->ndim == 2 ? scale->dim[1] : 1;
    if (!is_like(scale, int4 ? "F16" : "F32", int4 ? 2 : 1, rows, groups) || groups < 1 || columns % groups)
        return wrong_part(path, name, CODES_SCALE, int4 ? "F16" : "F32", err);
    if (int4 && !is_like(zero, "U8", 2, rows, groups))
        return wrong_part(path, name, CODES_ZERO, "U8", err);
    *out = *codes;
    if (coded_check(coding, rows, columns, columns / groups, name, err) < 0)
        return error_wrap(err, "%s", path);
    out->dtype = DTYPE_F32;
    (void)snprintf(out->type, sizeof out->type, "%s", coding_name(coding)); /* fits */
    out->dim[1] = columns;
    out->out_in = true;
    out->codes = (struct file_codes){.there = true,
                                     .coding = coding,
                                     .group = columns / groups,
                                     .scale_file = scale->file,
                                     .zero_file = int4 ? zero->file : 0,
                                     .scales = scale->offset,
                                     .zeros = int4 ? zero->offset : 0};
    return 0;
}

/* Marks a part for removal. */
static void drop(const struct file_tensors *tensors, bool *dropped, const char *name, const char *suffix)
{
    const struct file_tensor *t = part(tensors, name, suffix);
    if (t)
        dropped[t - tensors->item] = true;
}

static int fold_one(struct file_tensors *tensors, const char *path, int i, struct file_tensors *folded,
                    bool *dropped, struct muster_error *err)
{
    enum coding coding;
    const size_t length = coded_name(tensors->item[i].name, &coding);
    struct file_tensor meant;
    if (!length)
        return 0;
    scope_free char *name = mem_strndup(tensors->item[i].name, length);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the names of tensors");
    if (codes_describe(tensors, path, name, &tensors->item[i], coding, &meant, err) < 0)
        return -1;
    dropped[i] = true;
    drop(tensors, dropped, name, CODES_SCALE);
    if (coding == CODING_INT4)
        drop(tensors, dropped, name, CODES_ZERO);
    meant.name = name;
    return tensors_add(folded, &meant, err);
}

static int rebuild(struct file_tensors *tensors, const bool *dropped, struct file_tensors *folded,
                   struct muster_error *err)
{
    for (int i = 0; i < tensors->count; i++)
        if (!dropped[i] && tensors_add(folded, &tensors->item[i], err) < 0)
            return -1;
    tensors_free(tensors);
    *tensors = *folded;
    *folded = (struct file_tensors){0};
    return 0;
}

int codes_fold(struct file_tensors *tensors, const char *path, struct muster_error *err)
{
    struct file_tensors folded = {0};
    scope_free bool *dropped = mem_calloc((size_t)tensors->count + 1, sizeof *dropped);
    if (!dropped)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d tensors", tensors->count);
    int result = 0;
    for (int i = 0; i < tensors->count && !result; i++)
        result = fold_one(tensors, path, i, &folded, dropped, err);
    if (!result && folded.count)
        result = rebuild(tensors, dropped, &folded, err) < 0 ? -1 : tensors_sort(tensors, path, err);
    tensors_free(&folded);
    return result;
}

int codes_text(const struct file_tensors *tensors, struct buffer *out)
{
    int count[CODING_COUNT] = {0}, kinds = 0;
    int64_t group = 0;
    for (int i = 0; i < tensors->count; i++) {
        const struct file_codes *codes = &tensors->item[i].codes;
        count[codes->coding] += codes->there;
        if (codes->there && codes->coding == CODING_INT4)
            group = codes->group;
    }
    for (int i = 0; i < CODING_COUNT; i++) {
        if (!count[i])
            continue;
        (void)buffer_printf(out, "%s%d", kinds ? " and " : "", count[i]);
        if (!kinds++)
            (void)buffer_printf(out, " of %d tensors are", tensors->count);
        (void)buffer_printf(out, " in %s", coding_name((enum coding)i));
        if (i == CODING_INT4)
            (void)buffer_printf(out, " in groups of %lld", (long long)group);
    }
    return out->failed ? -1 : 0;
}
