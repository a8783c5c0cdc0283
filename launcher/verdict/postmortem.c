/* postmortem.c - see postmortem.h. A thread owns its input until it returns: the bodies are copies, the
 * kernel evidence is lent. */
#include "launcher/verdict/postmortem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "launcher/output/tail.h"
#include "launcher/verdict/error_file.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

struct list {
    struct postmortem_body *bodies;
    int count, capacity;
};

struct opening {
    struct kernel_evidence_paths paths;
    char *visible;
    struct kernel_evidence *witness;
};

struct examination {
    struct list list;
    struct instant started;
    char *visible;
    struct kernel_evidence *witness; /* NULL: none, or not open yet */
    int64_t attributed;
};

struct postmortem {
    struct instant started;
    char *visible;
    struct background_job *open_errand;
    struct opening *opening;
    struct kernel_evidence *witness; /* while it is not lent */
    int64_t attributed;
    bool stalled;
    struct background_job *errand;
    struct examination *examination; /* the errand's */
    struct list waiting, asked, ready;
};

/* --- lists --- */

static void free_list(struct list *list)
{
    postmortem_free_bodies(list->bodies, list->count);
    *list = (struct list){0};
}

void postmortem_free_bodies(struct postmortem_body *bodies, int count)
{
    for (int i = 0; i < count; i++) {
        mem_free(bodies[i].stderr_file);
        mem_free(bodies[i].error_file);
    }
    mem_free(bodies);
}

static int append(struct list *list, const struct postmortem_body *body)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 4;
        struct postmortem_body *bodies = mem_realloc(list->bodies, (size_t)capacity, sizeof *bodies);
        if (!bodies)
            return -1;
        list->bodies = bodies;
        list->capacity = capacity;
    }
    list->bodies[list->count++] = *body;
    return 0;
}

/* Deep. False without memory: to is empty then. */
static bool copy_list(const struct list *from, struct list *to)
{
    *to = (struct list){0};
    for (int i = 0; i < from->count; i++) {
        struct postmortem_body body = from->bodies[i];
        const char *stderr_file = body.stderr_file, *error_file = body.error_file;
        body.stderr_file = stderr_file ? mem_strdup(stderr_file) : NULL;
        body.error_file = error_file ? mem_strdup(error_file) : NULL;
        if (!stderr_file == !body.stderr_file && !error_file == !body.error_file && append(to, &body) == 0)
            continue;
        mem_free(body.stderr_file);
        mem_free(body.error_file);
        free_list(to);
        return false;
    }
    return true;
}

/* Appends from's bodies to those of to, which owns them from now on; without memory they are missing in
 * the report. */
static void move_list(struct list *from, struct list *to)
{
    if (!to->count) {
        free_list(to);
        *to = *from;
        *from = (struct list){0};
        return;
    }
    for (int i = 0; i < from->count; i++) {
        if (append(to, &from->bodies[i]) == 0)
            continue;
        mem_free(from->bodies[i].stderr_file);
        mem_free(from->bodies[i].error_file);
    }
    mem_free(from->bodies);
    *from = (struct list){0};
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

static void read_error_file(struct postmortem_body *body, struct instant started)
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
        (void)snprintf(body->note, sizeof body->note, "%s", err.text);
        return;
    }
    memcpy(failure->message, report.message, sizeof failure->message);
    memcpy(failure->traceback, report.traceback, sizeof failure->traceback);
    if (!report.timed)
        return;
    body->at = postmortem_time(started, body->at, failure->wall_ns, report.wall_ns, report.grain_ns);
    if (report.wall_ns < failure->wall_ns &&
        failure->wall_ns - report.wall_ns < instant_diff_ns(clock_now(NULL), started))
        failure->wall_ns = report.wall_ns;
}

static void examine(void *payload)
{
    struct examination *x = payload;
    struct worker_failure **failures = mem_calloc((size_t)x->list.count, sizeof *failures);
    scope_free struct kernel_evidence_account *account = mem_calloc(1, sizeof *account);
    for (int i = 0; i < x->list.count; i++) {
        struct postmortem_body *body = &x->list.bodies[i];
        if (body->stderr_file)
            read_tail(body->stderr_file, body->failure.tail, sizeof body->failure.tail);
        if (body->error_file)
            read_error_file(body, x->started);
        if (failures)
            failures[i] = &body->failure;
    }
    if (x->witness && failures && account) {
        kernel_evidence_hear(x->witness, account);
        kernel_evidence_apply(account, x->visible, &x->attributed, failures, x->list.count);
    }
    mem_free(failures);
}

static void free_examination(void *payload)
{
    struct examination *x = payload;
    free_list(&x->list);
    kernel_evidence_close(x->witness);
    mem_free(x->visible);
    mem_free(x);
}

static void open_witness(void *payload)
{
    struct opening *opening = payload;
    opening->witness = kernel_evidence_open(&opening->paths);
}

static void free_opening(void *payload)
{
    struct opening *opening = payload;
    kernel_evidence_close(opening->witness);
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
        background_job_start("watching the kernel log", open_witness, opening, free_opening, err);
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
    background_job_release(p->errand);
    kernel_evidence_close(p->witness);
    free_list(&p->waiting);
    free_list(&p->asked);
    free_list(&p->ready);
    mem_free(p->visible);
    mem_free(p);
}

int postmortem_add(struct postmortem *p, const struct postmortem_question *question, struct muster_error *err)
{
    const char *stderr_file = question->stderr_file, *error_file = question->error_file;
    struct postmortem_body body = {.failure = *question->failure,
                                   .at = question->at,
                                   .suspect = question->suspect,
                                   .stderr_file = stderr_file ? mem_strdup(stderr_file) : NULL,
                                   .error_file = error_file ? mem_strdup(error_file) : NULL};
    if (!stderr_file == !body.stderr_file && !error_file == !body.error_file &&
        append(&p->waiting, &body) == 0)
        return 0;
    mem_free(body.stderr_file);
    mem_free(body.error_file);
    return error_set(err, MUSTER_E_NOMEM, "no memory for the post-mortem of a worker");
}

/* The kernel evidence, once it is open. */
static void take_witness(struct postmortem *p)
{
    if (!p->open_errand || !background_job_is_done(p->open_errand))
        return;
    p->witness = take_pointer(&p->opening->witness);
    background_job_release(take_pointer(&p->open_errand));
}

static struct examination *make_examination(struct postmortem *p)
{
    struct examination *x = mem_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->started = p->started;
    x->attributed = p->attributed;
    x->visible = p->visible ? mem_strdup(p->visible) : NULL;
    if (!p->visible != !x->visible || !copy_list(&p->waiting, &x->list)) {
        free_examination(x);
        return NULL;
    }
    x->witness = take_pointer(&p->witness);
    return x;
}

void postmortem_go(struct postmortem *p)
{
    if (p->errand || !p->waiting.count)
        return;
    take_witness(p);
    struct examination *x = p->stalled ? NULL : make_examination(p);
    p->errand =
        x ? background_job_start("the post-mortem of a worker", examine, x, free_examination, NULL) : NULL;
    p->examination = p->errand ? x : NULL;
    move_list(&p->waiting, p->errand ? &p->asked : &p->ready);
}

int postmortem_fd(const struct postmortem *p)
{
    return p->errand ? background_job_fd(p->errand) : -1;
}

bool postmortem_wait(const struct postmortem *p, int64_t patience_ns)
{
    return !p->errand || background_job_wait(p->errand, patience_ns);
}

void postmortem_give_up(struct postmortem *p)
{
    if (!p->errand)
        return;
    p->stalled = true;
    background_job_release(take_pointer(&p->errand));
    move_list(&p->asked, &p->ready);
    postmortem_go(p);
}

struct postmortem_body *postmortem_take(struct postmortem *p, int *count)
{
    if (p->errand && background_job_is_done(p->errand)) {
        struct examination *x = p->examination;
        p->witness = take_pointer(&x->witness);
        p->attributed = x->attributed;
        free_list(&p->asked);
        move_list(&x->list, &p->ready);
        background_job_release(take_pointer(&p->errand));
    }
    *count = p->ready.count;
    struct postmortem_body *bodies = p->ready.bodies;
    p->ready = (struct list){0};
    if (*count)
        return bodies;
    mem_free(bodies);
    return NULL;
}

bool postmortem_is_busy(const struct postmortem *p)
{
    return p->waiting.count || p->asked.count || p->ready.count;
}
