/* decide_torch.c - rules about diagnostics for failures: NCCL's messages, PyTorch's flight recorder. */
#include <stdio.h>
#include <string.h>

#include "runtime/nccl/decide/decide_internal.h"

static void nccl_debug(struct decider *d)
{
    if (decide_has_gpus(d) && !decide_user(d, "NCCL_DEBUG"))
        decide_set(d, "NCCL_DEBUG", "WARN", "NCCL prints the cause of an error, and nothing else");
}

/* NCCL compares names only, in any case, and prints nothing at all for another word. */
static void nccl_debug_level(struct decider *d)
{
    static const char *const levels[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"};
    const char *value = decide_user(d, "NCCL_DEBUG");
    for (size_t i = 0; value && i < sizeof levels / sizeof *levels; i++)
        if (!strcasecmp(value, levels[i]))
            return;
    if (value)
        decide_warn(
            d, "NCCL_DEBUG", value,
            "it is not a level of NCCL, which prints nothing then, not even errors: use WARN (or INFO)");
}

/* At INFO every rank writes thousands of lines: into a file each, if there is a directory for them. */
static void nccl_debug_file(struct decider *d)
{
    const char *level = decide_user(d, "NCCL_DEBUG");
    char path[DESCRIPTION_TEXT + 32];
    if (!decide_has_gpus(d) || !*d->machine->log_dir || !level ||
        (strcasecmp(level, "INFO") && strcasecmp(level, "TRACE")))
        return;
    (void)snprintf(path, sizeof path, "%s/nccl.%%h.%%p.log", d->machine->log_dir);
    decide_set(d, "NCCL_DEBUG_FILE", path, "NCCL_DEBUG=%s of all ranks in one stream is unreadable", level);
}

static void flight_recorder(struct decider *d)
{
    char path[DESCRIPTION_TEXT + 32];
    if (!decide_has_gpus(d) || !*d->machine->log_dir)
        return;
    (void)snprintf(path, sizeof path, "%s/nccl_trace_rank_", d->machine->log_dir);
    static const char buffer[] =
        "PyTorch's flight recorder keeps the last 2000 collectives; older versions keep none";
    decide_set(d, "TORCH_FR_BUFFER_SIZE", "2000", buffer);
    decide_set(d, "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", buffer);
    decide_set(d, "TORCH_NCCL_DUMP_ON_TIMEOUT", "1",
               "when a collective times out, the recorder is written before the process ends");
    static const char where[] = "the default is in the container's home and is lost with it";
    decide_set(d, "TORCH_FR_DUMP_TEMP_FILE", path, where);
    decide_set(d, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", path, where);
}

static void blocking_wait(struct decider *d)
{
    if (decide_user_is_one(d, "TORCH_NCCL_BLOCKING_WAIT") || decide_user_is_one(d, "NCCL_BLOCKING_WAIT"))
        decide_warn(d, "TORCH_NCCL_BLOCKING_WAIT", "1",
                    "it switches PyTorch's watchdog off, so that a hang is not detected: unset it");
}

static void errors_unhandled(struct decider *d)
{
    const char *value = decide_user(d, "TORCH_NCCL_ASYNC_ERROR_HANDLING");
    if (value && !strcmp(value, "0"))
        decide_warn(d, "TORCH_NCCL_ASYNC_ERROR_HANDLING", value,
                    "a collective that times out then blocks for ever: unset it");
}

const struct decide_rule decide_rules_torch[] = {
    {"nccl-debug", nccl_debug},
    {"nccl-debug-level", nccl_debug_level},
    {"nccl-debug-file", nccl_debug_file},
    {"flight-recorder", flight_recorder},
    {"blocking-wait", blocking_wait},
    {"error-handling", errors_unhandled},
    {0},
};
