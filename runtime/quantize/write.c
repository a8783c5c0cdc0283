/* write.c - quantize.h: the folder. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "runtime/files/codes.h"
#include "runtime/files/elements.h"
#include "runtime/files/folder.h"
#include "runtime/files/output.h"
#include "runtime/files/safetensors.h"
#include "runtime/quantize/quantize.h"

enum { PARTS = 3 }; /* codes, scales, zeros */

struct writing {
    const struct quantized *q;
    const struct files_export *what;
    struct file_tensors tensors;
    int (*part)[PARTS]; /* [param_count] of a parameter: its tensors */
    struct layout layout;
    struct output output;
};

/* ---- which tensors ---- */

/* Describes the tensors that stand for one parameter, and the suffixes of their names. Returns their number.
 */
static int describe_coded(const struct coded *c, struct file_tensor out[PARTS], const char *behind[PARTS])
{
    const bool int4 = c->coding == CODING_INT4;
    const int64_t groups = c->columns / c->group;
    behind[0] = int4 ? ".int4" : ".int8";
    behind[1] = CODES_SCALE;
    behind[2] = CODES_ZERO;
    out[0] = (struct file_tensor){.type = "I8",
                                  .dtype = int4 ? DTYPE_U8 : DTYPE_COUNT,
                                  .ndim = 2,
                                  .dim = {c->rows, int4 ? c->columns / 2 : c->columns},
                                  .bytes = coded_code_bytes(c, c->rows)};
    out[1] = (struct file_tensor){.dtype = int4 ? DTYPE_F16 : DTYPE_F32,
                                  .ndim = int4 ? 2 : 1,
                                  .dim = {c->rows, int4 ? groups : 0},
                                  .bytes = coded_scale_bytes(c, c->rows)};
    out[2] = (struct file_tensor){
        .dtype = DTYPE_U8, .ndim = 2, .dim = {c->rows, groups}, .bytes = coded_zero_bytes(c, c->rows)};
    return int4 ? 3 : 2;
}

static int describe_param(const struct writing *w, int param, struct file_tensor out[PARTS],
                          const char *behind[PARTS])
{
    const struct param_desc *desc = &w->q->model->params[param];
    if (w->q->coded[param].codes)
        return describe_coded(&w->q->coded[param], out, behind);
    behind[0] = "";
    out[0] = (struct file_tensor){.dtype = w->what->dtype,
                                  .ndim = desc->ndim,
                                  .bytes = param_elements(desc) * dtype_size(w->what->dtype)};
    for (int d = 0; d < desc->ndim; d++)
        out[0].dim[d] = desc->dim[desc->file_transposed ? desc->ndim - 1 - d : d];
    return 1;
}

static int aligned_for(const struct file_tensor *tensor)
{
    return tensor->dtype == DTYPE_COUNT ? 1 : dtype_size(tensor->dtype);
}

/* Adds the tensors with wide elements first, so that every tensor is aligned for its own elements. */
static int add_tensors(struct writing *w, struct muster_error *err)
{
    const struct tensor_naming naming = architecture_naming(w->what->architecture);
    for (int size = 8; size; size /= 2)
        for (int i = 0; i < w->q->model->param_count; i++) {
            struct file_tensor tensor[PARTS];
            const char *behind[PARTS];
            const int count = describe_param(w, i, tensor, behind);
            for (int k = 0; k < count; k++) {
                if (aligned_for(&tensor[k]) != size)
                    continue;
                scope_free char *name =
                    mem_printf("%s%s%s", naming.prefix, w->q->model->params[i].name, behind[k]);
                if (!name)
                    return error_set(err, MUSTER_E_NOMEM, "no memory for the names of tensors");
                tensor[k].name = name;
                w->part[i][k] = w->tensors.count;
                if (tensors_add(&w->tensors, &tensor[k], err) < 0)
                    return -1;
            }
        }
    return 0;
}

/* ---- writing ---- */

static int put_tensor(struct writing *w, int tensor, const void *data, struct muster_error *err)
{
    const struct file_tensor *t = &w->tensors.item[tensor];
    return output_write(&w->output, t->offset, data, t->bytes, err);
}

static int put_coded(struct writing *w, int param, struct muster_error *err)
{
    const struct coded *c = &w->q->coded[param];
    const int *part = w->part[param];
    return put_tensor(w, part[0], c->codes, err) || put_tensor(w, part[1], c->scales, err) ||
                   (c->zeros && put_tensor(w, part[2], c->zeros, err))
               ? -1
               : 0;
}

static int put_param(void *context, int param, const void *values, struct muster_error *err)
{
    struct writing *w = context;
    const struct param_desc *desc = &w->q->model->params[param];
    if (w->q->coded[param].codes)
        return put_coded(w, param, err);
    const int64_t elements = param_elements(desc);
    scope_free float *turned = desc->file_transposed ? mem_calloc((size_t)elements, sizeof *turned) : NULL;
    scope_free void *converted = mem_calloc((size_t)elements, (size_t)dtype_size(w->what->dtype));
    if (!converted || (desc->file_transposed && !turned))
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", desc->name);
    if (turned)
        elements_transpose(turned, desc->dim[0], values, desc->dim[1], desc->dim[0], desc->dim[1],
                           sizeof *turned);
    elements_convert(converted, w->what->dtype, turned ? turned : values, DTYPE_F32, elements);
    return put_tensor(w, w->part[param][0], converted, err);
}

static int write_tensors(struct writing *w, struct trainer *trainer, const char *path,
                         struct muster_error *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    scope_buffer header = {0};
    char name[LAYOUT_NAME];
    scope_free char *file = mem_printf("%s/%s", path, layout_file_name(&w->layout, 0, name));
    if (!file)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    if (add_tensors(w, err) < 0 ||
        safetensors_format(w->tensors.item, w->tensors.count, metadata, &header, err) < 0 ||
        output_open(&w->output, file, err) < 0)
        return -1;
    if (output_write(&w->output, 0, header.data, (int64_t)header.length, err) < 0 ||
        trainer_each_param(trainer, put_param, w, err) < 0 || output_sync(&w->output, err) < 0)
        return -1;
    return output_place(&w->output, err);
}

int quantized_write(const struct quantized *q, struct trainer *trainer, const char *path,
                    const struct files_export *what, struct muster_error *err)
{
    struct files_export marked = *what;
    marked.quantized = q->options.method != QUANTIZE_NONE;
    struct writing w = {.q = q,
                        .what = &marked,
                        .layout = {.file_count = 1, .quantized = marked.quantized},
                        .output = {.fd = -1}};
    w.part = mem_calloc((size_t)q->model->param_count, sizeof *w.part);
    int failed = !w.part ? error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path)
                         : io_make_directories(path, 0777, err);
    failed = failed || write_tensors(&w, trainer, path, err) < 0;
    output_close(&w.output);
    tensors_free(&w.tensors);
    mem_free(w.part);
    return failed ? -1 : folder_finish(path, &w.layout, &marked, err);
}
