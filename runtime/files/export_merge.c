/* export_merge.c - a base is written with the adapters' products added, W + alpha / rank B A, as
 * PEFT's merge_and_unload does. The trainer's own values stay as they are. */
#include "runtime/files/files_internal.h"

#include "proto/base/error.h"

bool export_merges(const struct exporting *e)
{
    return e->what->lora && e->what->format != FILES_PEFT;
}

static int merge_no_memory(const struct exporting *e, int param, struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to add adapters to %s", e->model->params[param].name);
}

static int keep_adapter(void *context, int param, const void *values, struct muster_error *err)
{
    struct exporting *e = context;
    const struct param_desc *desc = &e->model->params[param];
    const size_t bytes = (size_t)(param_elements(desc) * dtype_size(e->real));
    if (desc->adapter == PARAM_OF_BASE)
        return 0;
    e->adapters[param] = mem_calloc(bytes, 1);
    if (!e->adapters[param])
        return merge_no_memory(e, param, err);
    memcpy(e->adapters[param], values, bytes);
    return 0;
}

int export_take_adapters(struct exporting *e, bool writes, struct muster_error *err)
{
    int failed = 0;
    if (writes && !(e->adapters = mem_calloc((size_t)e->model->param_count, sizeof *e->adapters)))
        failed = merge_no_memory(e, 0, err);
    return trainer_each_param_of(e->trainer, TRAINER_PARAMS_ADAPTERS, writes && !failed ? keep_adapter : NULL,
                                 e, failed ? NULL : err) ||
                   failed
               ? -1
               : 0;
}

static double value_at(const struct exporting *e, const void *values, int64_t i)
{
    return e->real == DTYPE_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* One row of W + scale B A; sums: (columns). */
static void merge_row(const struct exporting *e, const void *a, const void *b, int64_t rank, int64_t row,
                      int64_t columns, double *sums, void *out)
{
    for (int64_t c = 0; c < columns; c++)
        sums[c] = 0;
    for (int64_t k = 0; k < rank; k++) {
        const double factor = value_at(e, b, row * rank + k);
        for (int64_t c = 0; c < columns; c++)
            sums[c] += factor * value_at(e, a, k * columns + c);
    }
    for (int64_t c = 0; c < columns; c++) {
        const double merged = value_at(e, out, row * columns + c) + e->model->adapter_scale * sums[c];
        if (e->real == DTYPE_F64)
            ((double *)out)[row * columns + c] = merged;
        else
            ((float *)out)[row * columns + c] = (float)merged;
    }
}

/* -1: there is none. */
static int adapter_of(const struct exporting *e, int param, enum param_adapter adapter)
{
    for (int i = 0; i < e->model->param_count; i++)
        if (e->model->params[i].adapter == adapter && e->model->params[i].adapts == param)
            return i;
    return -1;
}

const void *export_merged(struct exporting *e, int param, const void *values, struct muster_error *err)
{
    const int a = e->adapters ? adapter_of(e, param, PARAM_LORA_A) : -1;
    const int b = e->adapters ? adapter_of(e, param, PARAM_LORA_B) : -1;
    if (a < 0 || b < 0)
        return values;
    const struct param_desc *desc = &e->model->params[param];
    const int64_t elements = param_elements(desc), rows = desc->dim[0], columns = desc->dim[1];
    if (elements > e->merged_room) {
        mem_free(e->merged);
        e->merged = mem_calloc((size_t)elements, sizeof(double));
        e->merged_room = e->merged ? elements : 0;
    }
    scope_free double *sums = mem_calloc((size_t)columns, sizeof *sums);
    if (!e->merged || !sums) {
        (void)merge_no_memory(e, param, err);
        return NULL;
    }
    memcpy(e->merged, values, (size_t)(elements * dtype_size(e->real)));
    for (int64_t row = 0; row < rows; row++)
        merge_row(e, e->adapters[a], e->adapters[b], e->model->params[a].dim[0], row, columns, sums,
                  e->merged);
    return e->merged;
}

void export_free_adapters(struct exporting *e)
{
    for (int i = 0; e->adapters && i < e->model->param_count; i++)
        mem_free(e->adapters[i]);
    mem_free(e->adapters);
    mem_free(e->merged);
}
