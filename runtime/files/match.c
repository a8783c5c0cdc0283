/* match.c - see files_internal.h. */
#include "runtime/files/files_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* ---- findings: a list of names for one error ---- */

struct findings {
    struct buffer text;
    int count;
};

static void note(struct findings *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct findings *f, const char *format, ...)
{
    char text[256];
    va_list args;
    if (f->count++ >= MATCH_LISTED)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args); /* names are short; a cut one will do */
    va_end(args);
    (void)buffer_printf(&f->text, "%s%s", f->count > 1 ? ", " : "", text);
}

static void put_findings(struct buffer *out, const char *what, struct findings *f)
{
    if (!f->count)
        return;
    (void)buffer_printf(out, "%s%d %s: %s", out->length ? "; " : "", f->count, what,
                        f->text.data ? f->text.data : "");
    if (f->count > MATCH_LISTED)
        (void)buffer_printf(out, " and %d more", f->count - MATCH_LISTED);
    buffer_free(&f->text);
}

/* ---- names ---- */

struct matcher {
    const struct file_tensors *tensors;
    const struct model *model;
    struct tensor_naming naming;
    const struct architecture *architecture;
    bool adapters; /* only adapters are looked for */
    bool whole;    /* names have the prefix that a model with its head gives them */
    bool *used;    /* [tensors.count] */
    struct match *match;
    struct findings missing, unexpected, shape, type;
    struct findings drawn, unread; /* no faults: parts of another head */
};

enum { NAME_ROOM = MODEL_NAME_LIMIT + 48 };

static bool matcher_wants(const struct matcher *m, int param)
{
    const enum param_adapter adapter = m->model->params[param].adapter;
    return adapter == PARAM_SAVED || (adapter != PARAM_OF_BASE) == m->adapters;
}

/* Parameters of a model with its head (whole), otherwise without it. */
static const char *name_in_file(const struct tensor_naming *naming, bool whole, bool adapters,
                                const char *param, char out[NAME_ROOM])
{
    size_t base = strlen(naming->base);
    if (!whole && base && !strncmp(param, naming->base, base))
        param += base;
    (void)snprintf(out, NAME_ROOM, "%s%s%s", adapters ? ADAPTER_PREFIX : "", whole ? naming->prefix : "",
                   param); /* fits */
    return out;
}

/* The tensor of a name; of a norm also by the names that older files have. */
static const struct file_tensor *find_tensor(const struct matcher *m, const char *name)
{
    static const char *const older[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    const struct file_tensor *found = tensors_find(m->tensors, name);
    const size_t length = strlen(name);
    for (int i = 0; i < 2 && !found && m->naming.older; i++) {
        const size_t end = strlen(older[i][0]);
        char other[NAME_ROOM];
        if (length < end || strcmp(name + length - end, older[i][0]) != 0)
            continue;
        (void)snprintf(other, sizeof other, "%.*s%s", (int)(length - end), name,
                       older[i][1]); /* it is shorter */
        found = tensors_find(m->tensors, other);
    }
    return found;
}

static int hits(const struct matcher *m, bool whole)
{
    char name[NAME_ROOM];
    int count = 0;
    for (int i = 0; i < m->model->param_count; i++)
        count += matcher_wants(m, i) &&
                 find_tensor(m, name_in_file(&m->naming, whole, m->adapters, m->model->params[i].name, name));
    return count;
}

/* ---- one parameter ---- */

static void check_shape(struct matcher *m, const struct param_desc *param, const struct file_tensor *tensor)
{
    if (param->statistic == PARAM_COUNT && tensor->ndim == 0)
        return; /* one number */
    bool same = tensor->ndim == param->ndim, swapped = param->file_transposed && !tensor->out_in;
    int64_t wanted[MODEL_DIMS] = {0};
    for (int d = 0; d < param->ndim; d++) {
        wanted[d] = param->dim[swapped ? param->ndim - 1 - d : d];
        same = same && tensor->dim[d] == wanted[d];
    }
    if (same)
        return;
    scope_buffer has = {0}, needs = {0};
    (void)tensor_shape_text(&has, tensor->ndim, tensor->dim);
    (void)tensor_shape_text(&needs, param->ndim, wanted);
    note(&m->shape, "%s is %s, not %s", tensor->name, has.data ? has.data : "", needs.data ? needs.data : "");
}

static void check_type(struct matcher *m, const struct param_desc *param, const struct file_tensor *tensor)
{
    if (param->statistic == PARAM_COUNT && tensor->integer)
        return;
    if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_F64 && tensor->dtype != DTYPE_BF16 &&
        tensor->dtype != DTYPE_F16)
        note(&m->type, "%s is %s", tensor->name, tensor->type);
}

static void match_param(struct matcher *m, int index)
{
    char name[NAME_ROOM];
    const struct param_desc *param = &m->model->params[index];
    const struct file_tensor *tensor =
        find_tensor(m, name_in_file(&m->naming, m->whole, m->adapters, param->name, name));
    if (!tensor) {
        note(architecture_may_lack(m->architecture, param->name) ? &m->drawn : &m->missing, "%s", name);
        return;
    }
    m->match->tensor[index] = (int)(tensor - m->tensors->item);
    m->used[m->match->tensor[index]] = true;
    check_shape(m, param, tensor);
    check_type(m, param, tensor);
}

static void match_tied(struct matcher *m)
{
    const struct file_tensor *tensor = m->naming.tied ? tensors_find(m->tensors, m->naming.tied) : NULL;
    for (int i = 0; tensor && !m->adapters && i < m->model->param_count; i++) {
        if (strcmp(m->model->params[i].name, m->naming.tied_to))
            continue;
        m->match->tied = (int)(tensor - m->tensors->item);
        m->match->tied_param = i;
        m->used[m->match->tied] = true;
        check_shape(m, &m->model->params[i], tensor);
        check_type(m, &m->model->params[i], tensor);
    }
}

static int report(struct matcher *m, const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    for (int i = 0; i < m->tensors->count; i++) {
        if (!m->used[i] && !architecture_ignores(m->tensors->item[i].name))
            note(architecture_leaves_unread(m->architecture, m->tensors->item[i].name) ? &m->unread
                                                                                       : &m->unexpected,
                 "%s", m->tensors->item[i].name);
    }
    put_findings(&text, "tensors are missing", &m->missing);
    put_findings(&text, "are unexpected", &m->unexpected);
    put_findings(&text, "have a wrong shape", &m->shape);
    put_findings(&text, "have a type that parameters cannot have", &m->type);
    m->match->drawn = m->drawn.count;
    put_findings(&m->match->notes, "parameters are not there and begin at random", &m->drawn);
    put_findings(&m->match->notes, "tensors of another head are not read", &m->unread);
    if (!text.length)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "%s does not fit %s: %s", path, m->model->name, text.data);
}

static int match_some(const char *path, const struct file_tensors *tensors, const struct model *model,
                      const struct architecture *architecture, bool adapters, struct match *match,
                      struct muster_error *err)
{
    scope_free bool *used = mem_calloc((size_t)tensors->count + 1, sizeof *used);
    struct matcher m = {.tensors = tensors,
                        .model = model,
                        .naming = architecture_naming(architecture),
                        .architecture = architecture,
                        .adapters = adapters,
                        .used = used,
                        .match = match};
    *match =
        (struct match){.tensor = mem_calloc((size_t)model->param_count, sizeof *match->tensor), .tied = -1};
    int result = -1;
    if (!used || !match->tensor) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to compare %d parameters with %s", model->param_count,
                        path);
    } else {
        m.whole = adapters || hits(&m, true) >= hits(&m, false);
        for (int i = 0; i < model->param_count; i++) {
            match->tensor[i] = -1;
            if (matcher_wants(&m, i))
                match_param(&m, i);
        }
        match_tied(&m);
        result = report(&m, path, err);
    }
    if (result < 0)
        match_free(match);
    return result;
}

int match_tensors(const char *path, const struct file_tensors *tensors, const struct model *model,
                  const struct architecture *architecture, struct match *match, struct muster_error *err)
{
    return match_some(path, tensors, model, architecture, false, match, err);
}

int match_adapters(const char *path, const struct file_tensors *tensors, const struct model *model,
                   const struct architecture *architecture, struct match *match, struct muster_error *err)
{
    return match_some(path, tensors, model, architecture, true, match, err);
}

void match_free(struct match *match)
{
    mem_free(match->tensor);
    match->tensor = NULL;
    buffer_free(&match->notes);
}
