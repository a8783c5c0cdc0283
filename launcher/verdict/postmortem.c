/* postmortem.c - see postmortem.h. Data given to a thread is its own until it comes back: it looks at copies
 * of the failures, since it may never come back, and the kernel evidence is lent. */
#include "launcher/verdict/postmortem.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "launcher/output/tail.h"
#include "launcher/verdict/error_file.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { LEFT_BYTES = 4096 }; /* a disk with less is full */

struct list {
    struct observed_failure *first, **end; /* end: where the next one goes; NULL: &first */
};

struct opening {
    struct kernel_evidence_paths paths;
    char *visible;
    struct kernel_evidence *evidence;
};

struct examination {
    struct observed_failure *failures; /* copies of the examined failures, in order */
    int count;
    struct instant started;
    char *visible;
    struct kernel_evidence *evidence; /* NULL: there is none, or it is not open yet */
    int64_t attributed;
};

struct postmortem {
    struct instant started;
    char *visible;
    struct background_job *open_errand;
    struct opening *opening;
    struct kernel_evidence *evidence; /* while it is not lent */
    int64_t attributed;
    bool stalled;
    struct background_job *job;
    struct examination *examination; /* the job's */
    struct list waiting, asked, ready;
};

/* --- lists --- */

static void empty(struct observed_failure *failure)
{
    mem_free(failure->stdout_file);
    mem_free(failure->stderr_file);
    mem_free(failure->error_file);
}

void observed_failure_free(struct observed_failure *failure)
{
    if (failure)
        empty(failure);
    mem_free(failure);
}

static void append(struct list *list, struct observed_failure *failure)
{
    failure->next = NULL;
    *(list->end ? list->end : &list->first) = failure;
    list->end = &failure->next;
}

static struct observed_failure *take_first(struct list *list)
{
    struct observed_failure *failure = list->first;
    if (!failure)
        return NULL;
    list->first = failure->next;
    if (!list->first)
        list->end = NULL;
    failure->next = NULL;
    return failure;
}

static void move_list(struct list *from, struct list *to)
{
    for (struct observed_failure *failure; (failure = take_first(from));)
        append(to, failure);
}

static void free_list(struct list *list)
{
    for (struct observed_failure *failure; (failure = take_first(list));)
        observed_failure_free(failure);
}

/* --- on the thread --- */

static void read_tail(const char *path, char *out, size_t size)
{
    char bytes[TAIL_BYTES];
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return;
    off_t from = status.st_size > TAIL_BYTES ? status.st_size - TAIL_BYTES : 0;
    ssize_t got = pread(fd, bytes, sizeof bytes, from);
    if (got > 0)
        tail_format(bytes, (size_t)got, from > 0, out, size);
}

struct instant postmortem_time(struct instant started, struct instant seen, int64_t seen_wall_ns,
                               int64_t wall_ns, int64_t grain_ns)
{
    int64_t before_ns = seen_wall_ns - wall_ns - grain_ns;
    if (before_ns <= 0 || before_ns >= instant_diff_ns(seen, started))
        return seen; /* from another run, or the wall clock was set */
    return instant_add(seen, -before_ns);
}

static void read_error_file(struct observed_failure *body, struct instant started)
{
    scope_buffer text = {0};
    struct error_report report;
    struct muster_error err = {0};
    struct worker_failure *failure = &body->failure;
    if (access(body->error_file, F_OK) < 0)
        return;
    (void)snprintf(failure->error_file, sizeof failure->error_file, "%s", body->error_file);
    if (io_read_file(body->error_file, ERROR_FILE_LIMIT, &text, &err) < 0 ||
        error_file_parse(text.data ? text.data : "", text.length, &report, &err) < 0) {
        (void)snprintf(body->note, sizeof body->note, "the error file of rank %d is not used: %.*s",
                       failure->rank, (int)sizeof body->note - 64, err.text);
        return;
    }
    memcpy(failure->message, report.message, sizeof failure->message);
    memcpy(failure->traceback, report.traceback, sizeof failure->traceback);
    body->place = report.place;
    if (!report.timed)
        return;
    body->at = postmortem_time(started, body->at, failure->wall_ns, report.wall_ns, report.grain_ns);
    if (report.wall_ns < failure->wall_ns &&
        failure->wall_ns - report.wall_ns < instant_diff_ns(clock_now(NULL), started))
        failure->wall_ns = report.wall_ns;
}

/* Output that found no room has no words about it. An error that a worker did print is not replaced, unless
 * it is this one. */
static void look_at_disk(struct observed_failure *body, const char *path)
{
    struct worker_failure *failure = &body->failure;
    struct statvfs disk;
    char text[MUSTER_ERROR_TEXT - 64];
    if (!path || failure->exit_code <= 0 || statvfs(path, &disk) < 0)
        return;
    const unsigned long long left =
        (unsigned long long)(geteuid() ? disk.f_bavail : disk.f_bfree) * disk.f_frsize;
    if (left >= LEFT_BYTES)
        return;
    (void)snprintf(text, sizeof text, "the disk of its log file is full, %llu bytes are left: %s", left,
                   path);
    if (!*failure->message && (!*failure->tail || strstr(failure->tail, "No space left on device")))
        (void)snprintf(failure->message, sizeof failure->message, "%s", text);
    else if (!*body->note && !strstr(failure->message, "log file is full"))
        (void)snprintf(body->note, sizeof body->note, "rank %d: %s", failure->rank, text);
}

/* Once a batch: it is of the node, not of a rank. */
static void note_lost_records(struct examination *x, const struct kernel_evidence_account *account)
{
    for (int i = 0; i < x->count; i++) {
        struct observed_failure *body = &x->failures[i];
        if (*body->note || !kernel_evidence_is_short(account, &body->failure))
            continue;
        (void)snprintf(body->note, sizeof body->note,
                       "rank %d: the kernel wrote over records of its log before they were read, so an error "
                       "that the GPU driver reported may be missing here: see the node's journal",
                       body->failure.rank);
        return;
    }
}

static void examine(void *payload)
{
    struct examination *x = payload;
    struct worker_failure **failures = mem_calloc((size_t)x->count, sizeof *failures);
    scope_free struct kernel_evidence_account *account = mem_calloc(1, sizeof *account);
    for (int i = 0; i < x->count; i++) {
        struct observed_failure *body = &x->failures[i];
        if (body->stderr_file)
            read_tail(body->stderr_file, body->failure.tail, sizeof body->failure.tail);
        if (body->error_file)
            read_error_file(body, x->started);
        look_at_disk(body, body->stdout_file);
        look_at_disk(body, body->stderr_file);
        if (failures)
            failures[i] = &body->failure;
    }
    if (x->evidence && failures && account) {
        kernel_evidence_read(x->evidence, account);
        kernel_evidence_apply(account, x->visible, &x->attributed, failures, x->count);
        for (int i = 0; i < x->count; i++)
            kernel_evidence_doubt(account, x->failures[i].at, failures[i]);
        note_lost_records(x, account);
    }
    mem_free(failures);
}

static void free_examination(void *payload)
{
    struct examination *x = payload;
    for (int i = 0; i < x->count; i++)
        empty(&x->failures[i]);
    mem_free(x->failures);
    kernel_evidence_close(x->evidence);
    mem_free(x->visible);
    mem_free(x);
}

static void open_evidence(void *payload)
{
    struct opening *opening = payload;
    opening->evidence = kernel_evidence_open(&opening->paths);
}

static void free_opening(void *payload)
{
    struct opening *opening = payload;
    kernel_evidence_close(opening->evidence);
    mem_free((char *)opening->paths.kernel_log);
    mem_free((char *)opening->paths.gpus);
    mem_free(opening);
}

/* --- on the agent's thread --- */

static int send_opening(struct postmortem *p, const struct kernel_evidence_paths *paths,
                        struct muster_error *err)
{
    struct opening *opening = mem_calloc(1, sizeof *opening);
    if (opening) {
        opening->paths.kernel_log = mem_strdup(paths->kernel_log);
        opening->paths.gpus = mem_strdup(paths->gpus);
    }
    if (!opening || !opening->paths.kernel_log || !opening->paths.gpus) {
        if (opening)
            free_opening(opening);
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch the kernel log");
    }
    p->opening = opening;
    p->open_errand =
        background_job_start("watching the kernel log", open_evidence, opening, free_opening, err);
    return p->open_errand ? 0 : -1;
}

struct postmortem *postmortem_create(const struct kernel_evidence_paths *paths, struct instant started,
                                     struct muster_error *err)
{
    struct postmortem *p = mem_calloc(1, sizeof *p);
    if (p) {
        p->started = started;
        p->visible = paths->visible ? mem_strdup(paths->visible) : NULL;
    }
    if (!p || !paths->visible != !p->visible) {
        postmortem_destroy(p);
        error_set(err, MUSTER_E_NOMEM, "no memory for the post-mortem of workers");
        return NULL;
    }
    if (send_opening(p, paths, err) == 0)
        return p;
    postmortem_destroy(p);
    return NULL;
}

void postmortem_destroy(struct postmortem *p)
{
    if (!p)
        return;
    background_job_release(p->open_errand);
    background_job_release(p->job);
    kernel_evidence_close(p->evidence);
    free_list(&p->waiting);
    free_list(&p->asked);
    free_list(&p->ready);
    mem_free(p->visible);
    mem_free(p);
}

void postmortem_add(struct postmortem *p, struct observed_failure *failure)
{
    append(&p->waiting, failure);
}

/* Deep. False without memory. */
static bool copy_failures(const struct list *list, struct examination *x)
{
    int count = 0;
    for (const struct observed_failure *failure = list->first; failure; failure = failure->next)
        count++;
    x->failures = mem_calloc((size_t)count, sizeof *x->failures);
    if (!x->failures)
        return false;
    for (const struct observed_failure *from = list->first; from; from = from->next) {
        struct observed_failure *to = &x->failures[x->count++];
        *to = *from;
        to->stdout_file = from->stdout_file ? mem_strdup(from->stdout_file) : NULL;
        to->stderr_file = from->stderr_file ? mem_strdup(from->stderr_file) : NULL;
        to->error_file = from->error_file ? mem_strdup(from->error_file) : NULL;
        if (!from->stdout_file != !to->stdout_file || !from->stderr_file != !to->stderr_file ||
            !from->error_file != !to->error_file)
            return false;
    }
    return true;
}

static struct examination *make_examination(struct postmortem *p)
{
    struct examination *x = mem_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->started = p->started;
    x->attributed = p->attributed;
    x->visible = p->visible ? mem_strdup(p->visible) : NULL;
    if (!p->visible != !x->visible || !copy_failures(&p->waiting, x)) {
        free_examination(x);
        return NULL;
    }
    x->evidence = take_pointer(&p->evidence);
    return x;
}

void postmortem_go(struct postmortem *p)
{
    if (p->job || !p->waiting.first)
        return;
    /* The kernel evidence, once it is open. */
    if (p->open_errand && background_job_is_done(p->open_errand)) {
        p->evidence = take_pointer(&p->opening->evidence);
        background_job_release(take_pointer(&p->open_errand));
    }
    struct examination *x = p->stalled ? NULL : make_examination(p);
    p->job =
        x ? background_job_start_or_run("the post-mortem of a worker", examine, x, free_examination, NULL)
          : NULL;
    p->examination = p->job ? x : NULL;
    move_list(&p->waiting, p->job ? &p->asked : &p->ready);
}

int postmortem_fd(const struct postmortem *p)
{
    return p->job ? background_job_fd(p->job) : -1;
}

bool postmortem_wait(const struct postmortem *p, int64_t patience_ns)
{
    return !p->job || background_job_wait(p->job, patience_ns);
}

void postmortem_give_up(struct postmortem *p)
{
    if (!p->job)
        return;
    p->stalled = true;
    background_job_release(take_pointer(&p->job));
    move_list(&p->asked, &p->ready);
    postmortem_go(p);
}

/* The thread has come back: its findings go into the records. */
static void take_findings(struct postmortem *p)
{
    struct examination *x = p->examination;
    const struct observed_failure *found = x->failures;
    for (struct observed_failure *failure = p->asked.first; failure; failure = failure->next, found++) {
        assert(found < x->failures + x->count);
        failure->more_found = memcmp(&failure->failure, &found->failure, sizeof found->failure) != 0;
        failure->failure = found->failure;
        failure->at = found->at;
        failure->place = found->place;
        memcpy(failure->note, found->note, sizeof failure->note);
    }
    p->evidence = take_pointer(&x->evidence);
    p->attributed = x->attributed;
    move_list(&p->asked, &p->ready);
    background_job_release(take_pointer(&p->job));
}

struct observed_failure *postmortem_take(struct postmortem *p)
{
    if (p->job && background_job_is_done(p->job))
        take_findings(p);
    return take_first(&p->ready);
}

bool postmortem_is_busy(const struct postmortem *p)
{
    return p->waiting.first || p->asked.first || p->ready.first;
}

bool postmortem_is_due(const struct postmortem *p)
{
    return p->ready.first || (p->waiting.first && !p->job);
}
