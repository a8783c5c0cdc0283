/* kernel_evidence.c - see kernel_evidence.h: the edge to the kernel's files. The rules are in
 * evidence_rules.c. */
#include "launcher/verdict/kernel_evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/host/machine.h"
#include "proto/base/cgroup.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

struct kernel_evidence {
    char *gpus;
    int kernel_log; /* -1: unreadable */
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

/* One record a read; EPIPE: some were overwritten before they were read. */
static void read_kernel_log(struct kernel_evidence *evidence)
{
    enum { RECORD_LIMIT = 8192, RECORDS_AT_ONCE = 100000 };
    char record[RECORD_LIMIT];
    for (int i = 0; evidence->kernel_log >= 0 && i < RECORDS_AT_ONCE; i++) {
        ssize_t length = read(evidence->kernel_log, record, sizeof record - 1);
        if (length < 0 && (errno == EPIPE || errno == EINTR))
            continue;
        if (length <= 0)
            return;
        record[length] = '\0';
        struct xid_report report;
        if (evidence->xid_count < KERNEL_EVIDENCE_XIDS_KEPT && xid_parse(record, &report))
            evidence->xids[evidence->xid_count++] = report;
    }
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
    if (!out->xid_count)
        return;
    out->pids_comparable = machine_in_first_pid_namespace();
    out->gpu_count = list_gpus(evidence->gpus, out->gpus);
}
