/* nvml_probe.c - see nvml_probe.h. The report stands in memory that both processes see, so that a hang in the
 * middle costs only what was not asked yet. */
#include "launcher/host/nvml_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "launcher/host/isolated_call.h"
#include "launcher/host/machine.h"
#include "launcher/host/visible_gpus.h"
#include "proto/base/error.h"
#include "proto/env_names.h"
#include "runtime/nccl/nvml/nvml_describe.h"

struct question {
    const char *library;
    struct nvml_report *report;
    bool processes_visible;
};

static int ask(void *context, void *result, struct muster_error *err)
{
    const struct question *question = context;
    (void)result;
    return nvml_describe(question->library, question->processes_visible, question->report, err);
}

static int ask_apart(struct nvml_report *report, int64_t patience_ns, struct description *description,
                     struct muster_error *err)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    struct question question = {library && *library ? library : NULL, report,
                                machine_in_first_pid_namespace()};
    struct muster_error failure = {0};
    int answered = isolated_call(ask, &question, NULL, 0, patience_ns, "NVML", &failure);
    return nvml_merge(report, answered < 0 ? &failure : NULL, description, err);
}

int nvml_probe_read(int64_t patience_ns, struct description *description, struct muster_error *err)
{
    if (!visible_gpus_have_driver()) {
        description->nvml = DESCRIPTION_NO;
        (void)snprintf(description->nvml_error, sizeof description->nvml_error,
                       "no NVIDIA driver here (/dev/nvidiactl)");
        return 0;
    }
    struct nvml_report *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        return error_set(err, MUSTER_E_NOMEM, "no memory for what NVML says");
    int result = ask_apart(report, patience_ns, description, err);
    (void)munmap(report, sizeof *report);
    return result;
}
