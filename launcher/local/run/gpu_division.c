/* gpu_division.c - see gpu_division.h. */
#include "launcher/local/run/gpu_division.h"

#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/visible_devices.h"

int gpu_wanted(const struct local_job *job)
{
    int wanted = 0;
    for (int i = 0; i < job->pod_count; i++)
        wanted += job->pods[i].gpus;
    return wanted;
}

bool gpu_claimed(const struct local_job *job)
{
    for (int i = 0; i < job->pod_count; i++)
        if (job->pods[i].claims)
            return true;
    return false;
}

/* GPUs of a pod with resource claims and no limits: an even share of what the others leave. */
static int share_of_claims(const struct local_job *job, int available)
{
    int pods = 0, left = available - gpu_wanted(job);
    for (int i = 0; i < job->pod_count; i++)
        pods += job->pods[i].claims && !job->pods[i].gpus;
    return pods && left > 0 ? left / pods : 0;
}

int gpu_divide(const struct local_job *job, const char *visible, int available, bool shortage_allowed,
               struct text_list *out, struct muster_error *err)
{
    int wanted = gpu_wanted(job), share = visible ? share_of_claims(job, available) : 0, taken = 0;
    if (wanted > available && !shortage_allowed)
        return error_set(err, MUSTER_E_LIMIT,
                         "the pods of %s request %d GPUs and this machine has %d (%s); lower "
                         "limits.nvidia.com/gpu, or let the last pods run without by --allow-gpu-shortage",
                         job->name, wanted, available,
                         visible ? "as limited by CUDA_VISIBLE_DEVICES or --gpus" : "all of them");
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        scope_buffer list = {0};
        int own = job->pods[i].claims && !job->pods[i].gpus ? share : job->pods[i].gpus;
        for (int k = 0; k < own && taken < available; k++) {
            if (k)
                buffer_text(&list, ",");
            /* A device's name, appended; visible NULL: its number. */
            int number = taken++;
            size_t length = 0;
            const char *entry = visible ? visible_devices_entry(visible, number, &length) : NULL;
            if (entry)
                buffer_append(&list, entry, length);
            else
                buffer_printf(&list, "%d", number);
        }
        if (text_list_take(out, buffer_take(&list)) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the lists of GPUs");
    }
    return 0;
}
