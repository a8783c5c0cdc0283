/* hang_dump.c - see hang_dump.h. */
#include "launcher/process/hang_dump.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/host/signal_names.h"
#include "launcher/process/descendants.h"
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { PROC_TEXT_LIMIT = 16384, TEXT_LIMIT = 32768, THREADS_LIMIT = 4096 };

/* --- texts --- */

/* The system calls that processes are usually waiting in. */
static const char *call_name(long number)
{
    switch (number) {
    case SYS_read:
        return "read";
    case SYS_write:
        return "write";
    case SYS_futex:
        return "futex";
    case SYS_ioctl:
        return "ioctl";
    case SYS_ppoll:
        return "ppoll";
    case SYS_epoll_pwait:
        return "epoll_pwait";
    case SYS_recvfrom:
        return "recvfrom";
    case SYS_recvmsg:
        return "recvmsg";
    case SYS_connect:
        return "connect";
    case SYS_accept4:
        return "accept4";
    case SYS_wait4:
        return "wait4";
    case SYS_clock_nanosleep:
        return "clock_nanosleep";
    case SYS_pselect6:
        return "pselect6";
    case SYS_fsync:
        return "fsync";
    case SYS_openat:
        return "openat";
#ifdef SYS_poll
    case SYS_poll:
        return "poll";
    case SYS_select:
        return "select";
    case SYS_epoll_wait:
        return "epoll_wait";
#endif
    default:
        return NULL;
    }
}

static void describe_call(const char *text, char *out, size_t size)
{
    char *end;
    long number = strtol(text, &end, 10);
    const char *name = end > text && number >= 0 ? call_name(number) : NULL;
    if (end == text) /* "running", or empty if not readable for us */
        (void)snprintf(out, size, "%.*s", (int)strcspn(text, " \n"), text);
    else if (name)
        (void)snprintf(out, size, "%s", name);
    else
        (void)snprintf(out, size, "system call %ld", number);
}

void hang_dump_count(struct hang_dump_threads *threads, const char *wchan, const char *call)
{
    char place[HANG_DUMP_NAME_LIMIT], name[HANG_DUMP_NAME_LIMIT];
    bool known = *wchan && strcmp(wchan, "0") != 0;
    (void)snprintf(place, sizeof place, "%.*s", known ? (int)strcspn(wchan, "\n") : 0, wchan);
    describe_call(call, name, sizeof name);
    threads->total++;
    int i = 0;
    while (i < threads->kind_count &&
           (strcmp(threads->kinds[i].place, place) != 0 || strcmp(threads->kinds[i].call, name) != 0))
        i++;
    if (i == HANG_DUMP_KINDS_LIMIT)
        return;
    if (i == threads->kind_count) {
        threads->kind_count++;
        memcpy(threads->kinds[i].place, place, sizeof place);
        memcpy(threads->kinds[i].call, name, sizeof name);
    }
    threads->kinds[i].count++;
}

int hang_dump_format(const struct hang_dump_threads *threads, struct buffer *out)
{
    int rest = threads->total;
    buffer_printf(out, "%d thread%s", threads->total, threads->total == 1 ? "" : "s");
    for (int i = 0; i < threads->kind_count; i++) {
        const char *call = threads->kinds[i].call, *place = threads->kinds[i].place;
        bool running = !strcmp(call, "running");
        buffer_printf(out, "%s %d %s%s", i ? "," : ":", threads->kinds[i].count, running ? "" : "in ",
                      *call ? call : "the kernel or its own code");
        if (*place)
            buffer_printf(out, " (%s)", place);
        rest -= threads->kinds[i].count;
    }
    if (rest)
        buffer_printf(out, ", %d elsewhere", rest);
    return out->failed ? -1 : 0;
}

/* A line is "[<0>] name+0x12/0x34 [module]". */
int hang_dump_format_stack(const char *stack, struct buffer *out)
{
    for (int count = 0; *stack; count++) {
        size_t line = strcspn(stack, "\n");
        const char *name = memchr(stack, ']', line);
        name = name ? name + 1 : stack;
        while (*name == ' ')
            name++;
        buffer_printf(out, "%s%.*s", count ? " < " : "", (int)strcspn(name, "+ \n"), name);
        stack += line + (stack[line] == '\n');
    }
    return out->failed ? -1 : 0;
}

/* --- one process --- */

static bool read_proc(struct buffer *text, const char *format, int pid, const char *thread, const char *name)
{
    char path[96];
    buffer_clear(text);
    (void)snprintf(path, sizeof path, format, pid, thread, name);
    return io_read_file(path, PROC_TEXT_LIMIT, text, NULL) == 0 && text->data;
}

static void count_threads(int pid, struct buffer *text, struct hang_dump_threads *threads)
{
    char path[64], wchan[HANG_DUMP_NAME_LIMIT];
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *directory = opendir(path);
    if (!directory)
        return;
    const struct dirent *entry;
    while (threads->total < THREADS_LIMIT && (entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        bool known = read_proc(text, "/proc/%d/task/%.16s/%s", pid, entry->d_name, "wchan");
        (void)snprintf(wchan, sizeof wchan, "%s", known ? text->data : "");
        known = read_proc(text, "/proc/%d/task/%.16s/%s", pid, entry->d_name, "syscall");
        hang_dump_count(threads, wchan, known ? text->data : "");
    }
    (void)closedir(directory);
}

/* Called for every process of the sessions; true: it is sent SIGUSR1. */
static bool look(void *context, const struct descendants_process *process)
{
    struct hang_dump *dump = context;
    struct hang_dump_threads threads = {0};
    scope_buffer text = {0};
    const int pid = (int)process->pid;
    bool stopped = process->state == 'T' || process->state == 't';
    for (size_t i = 0; stopped && !dump->stopped && i < dump->count; i++)
        if (dump->sessions[i] == process->pid)
            dump->stopped = process->pid;
    count_threads(pid, &text, &threads);
    buffer_printf(&dump->text, "pid %d (%s) is in state %c; ", pid, process->name, process->state);
    (void)hang_dump_format(&threads, &dump->text); /* the text remembers a failure */
    buffer_text(&dump->text, "\n");
    if (read_proc(&text, "/proc/%d/%s%s", pid, "", "stack") && *text.data) { /* for root only */
        buffer_printf(&dump->text, "pid %d kernel stack: ", pid);
        (void)hang_dump_format_stack(text.data, &dump->text);
        buffer_text(&dump->text, "\n");
    }
    bool caught =
        read_proc(&text, "/proc/%d/%s%s", pid, "", "status") && signal_is_caught(text.data, SIGUSR1);
    dump->asked += caught;
    return caught;
}

static void hang_dump_run(void *payload)
{
    struct hang_dump *dump = payload;
    scope_free struct descendants_session *sessions = mem_calloc(dump->count, sizeof *sessions);
    for (size_t i = 0; sessions && i < dump->count; i++)
        sessions[i].id = dump->sessions[i];
    struct descendants descendants = {.sessions = sessions, .session_count = sessions ? dump->count : 0};
    (void)descendants_sweep(&descendants, SIGUSR1, look, dump); /* without /proc there is nothing to report */
}

static void hang_dump_free(void *payload)
{
    struct hang_dump *dump = payload;
    buffer_free(&dump->text);
    mem_free(dump);
}

struct background_job *hang_dump_start(const pid_t *sessions, size_t count, struct hang_dump **dump,
                                       struct muster_error *err)
{
    *dump = mem_calloc(1, sizeof **dump + count * sizeof *sessions);
    if (!*dump) {
        error_set(err, MUSTER_E_NOMEM, "no memory to examine hung workers");
        return NULL;
    }
    (*dump)->count = count;
    (*dump)->text.limit = TEXT_LIMIT;
    memcpy((*dump)->sessions, sessions, count * sizeof *sessions);
    return background_job_start("examining hung workers", hang_dump_run, *dump, hang_dump_free, err);
}

/* --- signals --- */

enum { STATUS_LIMIT = 16384 };

bool process_handles(pid_t pid, int number)
{
    char path[64];
    scope_buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid); /* fits */
    return io_read_file(path, STATUS_LIMIT, &text, NULL) == 0 && text.data &&
           signal_is_caught(text.data, number);
}

/* --- activity --- */

enum { PROBE_TEXT_LIMIT = 4096 };

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

int64_t activity_probe_starved_ns(const char *schedstat_text)
{
    const char *at = strchr(schedstat_text, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

static bool read_proc_text(struct buffer *text, const char *format, pid_t pid)
{
    char path[64];
    buffer_clear(text);
    (void)snprintf(path, sizeof path, format, (int)pid);
    return io_read_file(path, PROBE_TEXT_LIMIT, text, NULL) == 0 && text->length &&
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
        if (read_proc_text(&text, "/proc/%d/schedstat", process->pid))
            sample->starved_ns += activity_probe_starved_ns(text.data);
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
