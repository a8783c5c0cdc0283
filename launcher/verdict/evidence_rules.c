/* evidence_rules.c - pure: attributes an out-of-memory kill or a GPU's error to a worker. See
 * kernel_evidence.h. */
#include <signal.h>
#include <string.h>

#include "launcher/verdict/kernel_evidence.h"
#include "proto/visible_devices.h"

const char *kernel_evidence_gpu_of(const struct kernel_evidence_gpu *gpus, int count, const char *visible,
                                   int local_rank)
{
    struct visible_device devices[KERNEL_EVIDENCE_GPU_LIMIT];
    int chosen[KERNEL_EVIDENCE_GPU_LIMIT];
    for (int i = 0; i < count; i++)
        devices[i] = (struct visible_device){.gpu = i, .uuid = gpus[i].uuid};
    int seen = visible_devices_choose(devices, count, visible, chosen);
    return local_rank >= 0 && local_rank < seen ? gpus[chosen[local_rank]].pci : "";
}

static bool killed(const struct worker_failure *failure)
{
    return failure->signal == SIGKILL;
}

/* As many of the workers that died of SIGKILL as the kernel has killed processes that are not attributed
 * yet. If a killed process was not a worker (a data loader, say), its worker's failure mentions the count. */
static void apply_memory(const struct kernel_evidence_account *account, int64_t *attributed,
                         struct worker_failure *const failures[], int count)
{
    for (int i = 0; i < count; i++) {
        struct worker_failure *failure = failures[i];
        failure->oom_check = account->oom_counted ? FAILURE_OOM_COUNTED : FAILURE_OOM_UNREADABLE;
        failure->oom_kills = account->oom_kills;
        if (!account->oom_kills)
            continue;
        failure->memory_limit = account->memory_limit;
        failure->memory_peak = account->memory_peak;
        if (!killed(failure) || *attributed >= account->oom_kills)
            continue;
        (*attributed)++;
        failure->out_of_memory = true;
        failure->memory_host = account->oom_beyond;
    }
}

void kernel_evidence_doubt(const struct kernel_evidence_account *account, struct instant ended,
                           struct worker_failure *failure)
{
    if (failure->oom_check == FAILURE_OOM_COUNTED && !failure->oom_kills &&
        instant_diff_ns(ended, account->opened) < 0)
        failure->oom_check = FAILURE_OOM_NOT_CHECKED;
}

/* Whether the list of visible devices names none at all, so that a worker can have used no GPU. */
static bool sees_no_gpu(const char *visible)
{
    size_t length = 0;
    const char *first = visible ? visible_devices_entry(visible, 0, &length) : NULL;
    return first && (!length || *first == '-'); /* "" or "-1" */
}

/* The reports about GPUs of this node: the kernel log is the machine's, and may speak of GPUs that this
 * container does not have, or have been written by somebody else's program. */
static int keep_own_gpus(const struct kernel_evidence_account *account, struct xid_report *kept)
{
    int count = 0;
    for (int i = 0; i < account->xid_count; i++)
        for (int j = 0; j < account->gpu_count; j++)
            if (!strcmp(account->xids[i].pci, account->gpus[j].pci)) {
                kept[count++] = account->xids[i];
                break;
            }
    return count;
}

static void apply_xid(const struct kernel_evidence_account *account, const struct xid_report *reports,
                      int report_count, const char *visible, struct worker_failure *failure)
{
    const struct xid_report *elsewhere;
    const char *pci = kernel_evidence_gpu_of(account->gpus, account->gpu_count, visible, failure->local_rank);
    const struct xid_report *report =
        xid_of_worker(reports, report_count, account->pids_comparable ? failure->pid : 0, pci, &elsewhere);
    if (!report && sees_no_gpu(visible))
        return;
    failure->xid_elsewhere = !report && elsewhere;
    report = report ? report : elsewhere;
    if (!report)
        return;
    failure->xid = report->number;
    memcpy(failure->pci, report->pci, sizeof failure->pci);
}

void kernel_evidence_apply(const struct kernel_evidence_account *account, const char *visible,
                           int64_t *attributed, struct worker_failure *const failures[], int count)
{
    apply_memory(account, attributed, failures, count);
    struct xid_report own[KERNEL_EVIDENCE_XIDS_KEPT];
    const int own_count = keep_own_gpus(account, own);
    for (int i = 0; i < count && own_count; i++)
        apply_xid(account, own, own_count, visible, failures[i]);
}
