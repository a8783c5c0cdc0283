/* layout.c - see layout.h. */
#include "runtime/files/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* A parameter on its way to its place. */
struct placing {
    int param, order;
    struct file_tensor tensor;
};

static int compare_order(const void *a, const void *b)
{
    const struct placing *first = a, *second = b;
    return first->order != second->order ? (first->order > second->order) - (first->order < second->order)
                                         : first->param - second->param;
}

static int compare_place(const void *a, const void *b)
{
    const struct placing *first = a, *second = b;
    return first->tensor.file != second->tensor.file ? first->tensor.file - second->tensor.file
                                                     : strcmp(first->tensor.name, second->tensor.name);
}

/* Appends the description of each tensor to `placing`. Returns their number. */
static int describe(const struct model *model, const struct architecture *architecture, bool prefixed,
                    bool adapters, enum dtype dtype, struct placing *placing, struct muster_error *err)
{
    const struct tensor_naming naming = architecture_naming(architecture);
    int count = 0;
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *param = &model->params[i];
        if (param->adapter != PARAM_SAVED && (param->adapter != PARAM_OF_BASE) != adapters)
            continue;
        struct placing *p = &placing[count++];
        *p = (struct placing){.param = i,
                              .order = architecture_order(architecture, param->name),
                              .tensor = {.dtype = dtype, .ndim = param->ndim}};
        for (int d = 0; d < param->ndim; d++)
            p->tensor.dim[d] = param->dim[param->file_transposed ? param->ndim - 1 - d : d];
        p->tensor.bytes = param_elements(param) * dtype_size(dtype);
        if (param->statistic == PARAM_COUNT) { /* PyTorch keeps a count as a number without a dimension */
            p->tensor.dtype = DTYPE_COUNT;
            p->tensor.integer = true;
            p->tensor.ndim = 0;
            p->tensor.bytes = sizeof(int64_t);
        }
        p->tensor.name =
            mem_printf("%s%s%s", adapters ? ADAPTER_PREFIX : "", prefixed ? naming.prefix : "", param->name);
        if (!p->tensor.name)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the names of %d tensors",
                             model->param_count);
    }
    return count;
}

/* Returns the number of files. The first shard is there before any tensor, as in huggingface_hub: a large
 * tensor is counted at once, the shard that is being filled when it is full or at the end. */
static int cut_shards(struct placing *placing, int count, int64_t shard_bytes)
{
    int files = 0, filled = 0; /* filled: index of the first tensor of the shard that is being filled */
    int64_t bytes = 0;
    bool any = false;
    for (int i = 0; i < count; i++)
        placing[i].tensor.file = -1;
    for (int i = 0; i < count; i++) {
        struct file_tensor *tensor = &placing[i].tensor;
        if (shard_bytes && tensor->bytes > shard_bytes) {
            tensor->file = files++;
            continue;
        }
        if (shard_bytes && bytes + tensor->bytes > shard_bytes) {
            for (int k = filled; k < i; k++)
                placing[k].tensor.file = placing[k].tensor.file < 0 ? files : placing[k].tensor.file;
            files += any;
            filled = i;
            bytes = 0;
        }
        any = true;
        bytes += tensor->bytes;
    }
    for (int k = filled; k < count; k++)
        placing[k].tensor.file = placing[k].tensor.file < 0 ? files : placing[k].tensor.file;
    return files + any;
}

static int fill_layout(const struct placing *placing, int count, int params, struct layout *layout,
                       struct muster_error *err)
{
    layout->tensor = mem_calloc((size_t)params + 1, sizeof *layout->tensor);
    layout->first = mem_calloc((size_t)layout->file_count + 1, sizeof *layout->first);
    if (!layout->tensor || !layout->first)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the places of %d tensors", count);
    for (int i = 0; i < params; i++)
        layout->tensor[i] = -1;
    for (int i = 0; i < count; i++) {
        layout->tensor[placing[i].param] = i;
        layout->first[placing[i].tensor.file + 1] = i + 1; /* index after the file's last tensor */
        if (tensors_add(&layout->tensors, &placing[i].tensor, err))
            return -1;
    }
    return 0;
}

static int make(const struct model *model, const struct architecture *architecture, bool prefixed,
                bool adapters, enum dtype dtype, int64_t shard_bytes, struct layout *layout,
                struct muster_error *err)
{
    size_t count = (size_t)model->param_count;
    scope_free struct placing *placing = mem_calloc(count + 1, sizeof *placing);
    *layout = (struct layout){.adapters = adapters};
    if (!placing)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the places of %zu tensors", count);
    int described = describe(model, architecture, prefixed, adapters, dtype, placing, err),
        result = described;
    if (described >= 0) {
        qsort(placing, (size_t)described, sizeof *placing, compare_order);
        layout->file_count = cut_shards(placing, described, shard_bytes);
        qsort(placing, (size_t)described, sizeof *placing, compare_place);
        result = fill_layout(placing, described, model->param_count, layout, err);
    }
    for (size_t i = 0; i < count; i++)
        mem_free(placing[i].tensor.name);
    if (result)
        layout_free(layout);
    return result;
}

int layout_make(const struct model *model, const struct architecture *architecture, bool prefixed,
                enum dtype dtype, int64_t shard_bytes, struct layout *layout, struct muster_error *err)
{
    return make(model, architecture, prefixed, false, dtype, shard_bytes, layout, err);
}

int layout_adapters(const struct model *model, const struct architecture *architecture, enum dtype dtype,
                    struct layout *layout, struct muster_error *err)
{
    return make(model, architecture, true, true, dtype, 0, layout, err);
}

void layout_free(struct layout *layout)
{
    tensors_free(&layout->tensors);
    mem_free(layout->tensor);
    mem_free(layout->first);
    *layout = (struct layout){0};
}

/* ---- names of files ---- */

const char *layout_file_name(const struct layout *layout, int file, char out[LAYOUT_NAME])
{
    if (layout->adapters)
        (void)snprintf(out, LAYOUT_NAME, "adapter_model.safetensors");
    else if (layout->quantized)
        (void)snprintf(out, LAYOUT_NAME, LAYOUT_QUANTIZED);
    else if (layout->file_count == 1)
        (void)snprintf(out, LAYOUT_NAME, "model.safetensors");
    else
        (void)snprintf(out, LAYOUT_NAME, "model-%05d-of-%05d.safetensors", file + 1, layout->file_count);
    return out;
}

bool layout_owns(const char *name)
{
    int end = 0, file, count;
    if (!strcmp(name, "model.safetensors") || !strcmp(name, "model.safetensors.index.json") ||
        !strcmp(name, LAYOUT_QUANTIZED))
        return true;
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", &file, &count, &end) == 2 && end && !name[end];
}

static int compare_tensor_names(const void *a, const void *b)
{
    const struct file_tensor *const *first = a, *const *second = b;
    return strcmp((*first)->name, (*second)->name);
}

int layout_index(const struct layout *layout, struct buffer *out, struct muster_error *err)
{
    int64_t elements = 0, bytes = 0;
    int count = layout->tensors.count;
    char name[LAYOUT_NAME];
    scope_free const struct file_tensor **sorted = mem_calloc((size_t)count + 1, sizeof *sorted);
    if (!sorted)
        return error_set(err, MUSTER_E_NOMEM, "no memory for an index of %d tensors", count);
    for (int i = 0; i < count; i++) {
        sorted[i] = &layout->tensors.item[i];
        elements += tensor_elements(sorted[i]->ndim, sorted[i]->dim);
        bytes += sorted[i]->bytes;
    }
    qsort(sorted, (size_t)count, sizeof *sorted, compare_tensor_names);
    (void)buffer_printf(out,
                        "{\n  \"metadata\": {\n    \"total_parameters\": %lld,\n    \"total_size\": %lld\n  "
                        "},\n  \"weight_map\": {",
                        (long long)elements, (long long)bytes);
    for (int i = 0; i < count; i++) {
        (void)buffer_text(out, i ? ",\n    " : "\n    ");
        (void)buffer_json_string(out, sorted[i]->name);
        (void)buffer_printf(out, ": \"%s\"", layout_file_name(layout, sorted[i]->file, name));
    }
    return buffer_text(out, "\n  }\n}\n")
               ? error_set(err, MUSTER_E_NOMEM, "no memory for an index of %d tensors", count)
               : 0;
}
