/* kernel_evidence.c - see kernel_evidence.h: reads the kernel's files, then attributes an out-of-memory kill
 * or a GPU's error to a worker (pure). */
#include "launcher/verdict/kernel_evidence.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/host/machine.h"
#include "proto/base/cgroup.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/kernel_log.h"
#include "proto/visible_devices.h"

/* --- reading --- */

struct kernel_evidence {
    char *gpus;
    int kernel_log; /* -1: unreadable */
    bool log_lost;  /* some of its records were overwritten before they were read */
    bool counted;   /* before is valid */
    struct cgroup_oom before;
    struct instant opened; /* when before was read */
    struct xid_report xids[KERNEL_EVIDENCE_XIDS_KEPT];
    int xid_count;
};

struct kernel_evidence_paths kernel_evidence_paths(void)
{
    return (struct kernel_evidence_paths){"/dev/kmsg", "/proc/driver/nvidia/gpus",
                                          getenv("CUDA_VISIBLE_DEVICES")};
}

struct kernel_evidence *kernel_evidence_open(const struct kernel_evidence_paths *paths)
{
    struct kernel_evidence *evidence = mem_calloc(1, sizeof *evidence);
    if (!evidence)
        return NULL;
    evidence->gpus = mem_strdup(paths->gpus);
    if (!evidence->gpus) {
        mem_free(evidence);
        return NULL;
    }
    /* each open file of the kernel log has its own position */
    evidence->kernel_log = open(paths->kernel_log, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (evidence->kernel_log >= 0 && lseek(evidence->kernel_log, 0, SEEK_END) < 0) {
        (void)close(evidence->kernel_log);
        evidence->kernel_log = -1;
    }
    evidence->counted = cgroup_oom("", &evidence->before);
    evidence->opened = clock_now(NULL);
    return evidence;
}

void kernel_evidence_close(struct kernel_evidence *evidence)
{
    if (!evidence)
        return;
    if (evidence->kernel_log >= 0)
        (void)close(evidence->kernel_log); /* it was only read */
    mem_free(evidence->gpus);
    mem_free(evidence);
}

/* A report too many takes the place of the first of the weakest kind: a round may last for weeks, and what it
 * dies of is among the last. */
static void keep_report(void *context, char *record)
{
    struct kernel_evidence *evidence = context;
    struct xid_report *kept = evidence->xids, report;
    if (!xid_parse(record, &report))
        return;
    if (evidence->xid_count == KERNEL_EVIDENCE_XIDS_KEPT) {
        int weakest = 0;
        for (int i = 1; i < evidence->xid_count; i++)
            if (xid_meaning(kept[i].number)->kind < xid_meaning(kept[weakest].number)->kind)
                weakest = i;
        if (xid_meaning(report.number)->kind < xid_meaning(kept[weakest].number)->kind)
            return;
        evidence->xid_count--;
        memmove(&kept[weakest], &kept[weakest + 1], (size_t)(evidence->xid_count - weakest) * sizeof *kept);
    }
    kept[evidence->xid_count++] = report;
}

static void read_kernel_log(struct kernel_evidence *evidence)
{
    enum { READS_AT_ONCE = 100000 };
    if (evidence->kernel_log >= 0)
        evidence->log_lost |= kernel_log_read(evidence->kernel_log, READS_AT_ONCE, keep_report, evidence);
}

static void take_uuid(const char *text, char *out, size_t size)
{
    static const char name[] = "GPU UUID:";
    const char *at = strstr(text, name);
    if (!at)
        return;
    at += sizeof name - 1;
    at += strspn(at, " \t");
    (void)snprintf(out, size, "%.*s", (int)strcspn(at, " \t\n"), at);
}

static int by_pci(const void *a, const void *b)
{
    return strcmp(((const struct kernel_evidence_gpu *)a)->pci, ((const struct kernel_evidence_gpu *)b)->pci);
}

static inline void guard_directory(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory);
}

/* A directory for each GPU assigned to this container. */
static int list_gpus(const char *path, struct kernel_evidence_gpu *gpus)
{
    enum { INFORMATION_LIMIT = 65536 };
    int count = 0;
    DIR *GUARD(guard_directory) directory = opendir(path);
    for (struct dirent *entry;
         directory && count < KERNEL_EVIDENCE_GPU_LIMIT && (entry = readdir(directory));) {
        struct kernel_evidence_gpu *gpu = &gpus[count];
        *gpu = (struct kernel_evidence_gpu){0};
        if (!xid_pci_normalize(entry->d_name, gpu->pci))
            continue;
        scope_buffer text = {0};
        scope_free char *file = mem_printf("%s/%s/information", path, entry->d_name);
        if (file && io_read_file(file, INFORMATION_LIMIT, &text, NULL) == 0 && text.length)
            take_uuid(text.data, gpu->uuid, sizeof gpu->uuid);
        count++;
    }
    qsort(gpus, (size_t)count, sizeof *gpus, by_pci);
    return count;
}

void kernel_evidence_read(struct kernel_evidence *evidence, struct kernel_evidence_account *out)
{
    struct cgroup_oom now;
    *out = (struct kernel_evidence_account){.opened = evidence->opened};
    read_kernel_log(evidence);
    if (evidence->counted && cgroup_oom("", &now)) {
        out->oom_counted = true;
        out->oom_kills = now.kills > evidence->before.kills ? now.kills - evidence->before.kills : 0;
        out->oom_beyond =
            out->oom_kills > 0 && now.hits <= evidence->before.hits && !cgroup_oom_is_full(&now);
        out->memory_limit = now.limit;
        out->memory_peak = now.peak;
    }
    memcpy(out->xids, evidence->xids, sizeof out->xids);
    out->xid_count = evidence->xid_count;
    out->log_lost = evidence->log_lost;
    if (!out->xid_count && !out->log_lost)
        return;
    out->pids_comparable = machine_in_first_pid_namespace();
    out->gpu_count = list_gpus(evidence->gpus, out->gpus);
}

/* --- attributing: pure --- */

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

bool kernel_evidence_is_short(const struct kernel_evidence_account *account,
                              const struct worker_failure *failure)
{
    return account->log_lost && account->gpu_count > 0 && (!failure->xid || failure->xid_elsewhere);
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
