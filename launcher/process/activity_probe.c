/* activity_probe.c - see activity_probe.h. */
#include "launcher/process/activity_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/process/descendants.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { PROC_TEXT_LIMIT = 4096 };

long long activity_probe_ticks(const char *stat_text)
{
    const char *at = strrchr(stat_text, ')');
    long long ticks = 0;
    for (int field = 3; at && field <= 17; field++) { /* the state is field 3; 14 to 17 are times */
        at = strchr(at + 1, ' ');
        if (at && field >= 14)
            ticks += strtoll(at + 1, NULL, 10);
    }
    return at ? ticks : -1;
}

static bool read_proc_text(struct buffer *text, const char *format, pid_t pid)
{
    char path[64];
    buffer_clear(text);
    (void)snprintf(path, sizeof path, format, (int)pid);
    return io_read_file(path, PROC_TEXT_LIMIT, text, NULL) == 0 && text->length &&
           buffer_append(text, "", 1) == 0;
}

static uint64_t file_size(pid_t pid, int fd)
{
    struct stat status;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
}

static void look_at_worker(const struct descendants_process *process, struct activity_sample *sample)
{
    scope_buffer wait = {0};
    bool known = read_proc_text(&wait, "/proc/%d/wchan", process->pid) && strcmp(wait.data, "0") != 0;
    (void)snprintf(sample->wait, sizeof sample->wait, "%c%s%.40s", process->state, known ? " " : "",
                   known ? wait.data : "");
    sample->output = file_size(process->pid, 1) + file_size(process->pid, 2);
}

/* Called for every process of the sessions; no signal is sent. */
static bool look_at_process(void *context, const struct descendants_process *process)
{
    struct activity_probe *probe = context;
    scope_buffer text = {0};
    for (size_t i = 0; i < probe->count; i++) {
        if (!probe->workers[i].session || probe->workers[i].session != process->session)
            continue;
        struct activity_sample *sample = &probe->workers[i].sample;
        long long ticks =
            read_proc_text(&text, "/proc/%d/stat", process->pid) ? activity_probe_ticks(text.data) : -1;
        sample->there = true;
        sample->cpu_ns += ticks < 0 ? 0 : ticks * (NS_PER_S / sysconf(_SC_CLK_TCK));
        if (process->pid == probe->workers[i].session)
            look_at_worker(process, sample);
    }
    return false;
}

static void activity_probe_run(void *payload)
{
    struct activity_probe *probe = payload;
    scope_free struct descendants_session *sessions = mem_calloc(probe->count, sizeof *sessions);
    for (size_t i = 0; sessions && i < probe->count; i++)
        sessions[i].id = probe->workers[i].session;
    struct descendants descendants = {
        .sessions = sessions, .session_count = sessions ? probe->count : 0, .blind = true};
    (void)descendants_sweep(&descendants, 0, look_at_process, probe); /* without /proc no worker is there */
}

struct background_job *activity_probe_start(const pid_t *sessions, size_t count,
                                            struct activity_probe **probe, struct muster_error *err)
{
    *probe = mem_calloc(1, sizeof **probe + count * sizeof *(*probe)->workers);
    if (!*probe) {
        error_set(err, MUSTER_E_NOMEM, "no memory to look at the workers");
        return NULL;
    }
    (*probe)->count = count;
    for (size_t i = 0; i < count; i++)
        (*probe)->workers[i].session = sessions[i];
    return background_job_start("looking at the workers", activity_probe_run, *probe, mem_free, err);
}
