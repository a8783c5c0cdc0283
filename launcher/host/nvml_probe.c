/* nvml_probe.c - see nvml_probe.h. The report is in memory shared by both processes, so that a hang in the
 * middle costs only the remaining queries. */
#include "launcher/host/nvml_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launcher/host/isolated_call.h"
#include "launcher/host/machine.h"
#include "proto/base/error.h"
#include "proto/env_names.h"

struct question {
    const char *library;
    struct nvml_report *report;
    bool processes_visible;
};

bool nvml_probe_has_driver(void)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    return (library && *library) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

static int ask(void *context, void *result, struct muster_error *err)
{
    const struct question *question = context;
    (void)result;
    return nvml_describe(question->library, question->processes_visible, question->report, err);
}

int nvml_probe_ask(struct nvml_probe *probe, int64_t patience_ns, struct muster_error *err)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    if (probe->report || !nvml_probe_has_driver())
        return 0;
    void *shared =
        mmap(NULL, sizeof *probe->report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return error_set(err, MUSTER_E_NOMEM, "no memory for NVML's report");
    probe->report = shared;
    struct question question = {library && *library ? library : NULL, probe->report,
                                machine_in_first_pid_namespace()};
    probe->failure = (struct muster_error){0};
    (void)isolated_call(ask, &question, NULL, 0, patience_ns, "NVML", &probe->failure); /* failure has it */
    return 0;
}

int nvml_probe_describe(struct nvml_probe *probe, int64_t patience_ns, struct description *description,
                        struct muster_error *err)
{
    if (nvml_probe_ask(probe, patience_ns, err) < 0)
        return -1;
    if (probe->report)
        return nvml_merge(probe->report, probe->failure.code ? &probe->failure : NULL, description, err);
    description->nvml = DESCRIPTION_NO;
    (void)snprintf(description->nvml_error, sizeof description->nvml_error,
                   "no NVIDIA driver here (/dev/nvidiactl)");
    return 0;
}

void nvml_probe_free(struct nvml_probe *probe)
{
    if (!probe || !probe->report)
        return;
    (void)munmap(probe->report, sizeof *probe->report); /* our own mapping */
    probe->report = NULL;
}
