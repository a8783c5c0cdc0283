/* api_libraries.c - memory of the libraries that multiply on a CPU, next to a plan's bytes. */
#include <inttypes.h>

#include "kernels/libraries.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"

/* A matrix has parameters, or the rows of a micro-batch. */
static int64_t longest_side(const struct muster_trainer *t)
{
    const struct model *m = &t->model;
    int64_t most = (int64_t)t->plan.shape.B * t->plan.shape.T;
    for (int i = 0; i < m->param_count; i++) {
        int64_t columns = 1;
        for (int d = 1; d < m->params[i].ndim; d++)
            columns *= m->params[i].dim[d];
        most = m->params[i].dim[0] > most ? m->params[i].dim[0] : most;
        most = columns > most ? columns : most;
    }
    return most;
}

static struct kernels_library_bytes bytes_of(const struct muster_trainer *t)
{
    const struct kernels *kernels = t->plan.value_dtype != DTYPE_F32 ? kernels_cpu_values(t->plan.value_dtype)
                                                                     : kernels_cpu_by(t->products, NULL);
    return kernels ? kernels_cpu_library_bytes(kernels, longest_side(t)) : (struct kernels_library_bytes){0};
}

void api_libraries_text(const struct muster_trainer *t, int32_t format, struct buffer *out)
{
    const struct kernels_library_bytes bytes = bytes_of(t);
    char openblas[32], onednn[32];
    if (api_plan_is_json(format)) {
        (void)buffer_printf(out,
                            ",\n \"libraries\": {\"openblas\": %" PRId64 ", \"onednn\": %" PRId64
                            ", \"openblas_mapped\": %" PRId64 "}",
                            bytes.openblas, bytes.onednn, bytes.mapped);
        return;
    }
    if (!bytes.openblas && !bytes.onednn)
        return;
    (void)buffer_text(out, "products of fp32 take more, at most, for each thread: ");
    if (bytes.openblas)
        (void)buffer_printf(out, "OpenBLAS %s%s",
                            text_format_bytes(openblas, sizeof openblas, bytes.openblas),
                            bytes.onednn ? ", " : "");
    if (bytes.onednn)
        (void)buffer_printf(out, "oneDNN %s", text_format_bytes(onednn, sizeof onednn, bytes.onednn));
    (void)buffer_text(out, "\n");
}

int api_libraries_room(void *trainer, struct muster_error *err)
{
    const struct muster_trainer *t = trainer;
    if (!t->found.device.ops->host_memory)
        return 0;
    const struct kernels_library_bytes bytes = bytes_of(t);
    return kernels_cpu_library_room(&bytes, t->threads, err);
}
