/* mount_plan.c - see mount_plan.h: makes the list, and executes it. */
#include "launcher/local/run/mount_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text_list.h"

enum { PATH_LIMIT = 4096 };

struct planning {
    struct mount_plan *plan;
    struct text_list covered; /* folders in memory so far */
    const char *stage;
    struct muster_error *err;
};

static int mount_no_memory(struct planning *p)
{
    return error_set(p->err, MUSTER_E_NOMEM, "no memory for a pod's mounts");
}

/* Takes from and to; a NULL `to` is a failed allocation. */
static int add(struct planning *p, enum mount_op_kind kind, char *from, char *to, int source)
{
    struct mount_op *longer = mem_realloc(p->plan->ops, (size_t)p->plan->count + 1, sizeof *longer);
    if (longer)
        p->plan->ops = longer;
    if (!longer || !to) {
        mem_free(from);
        mem_free(to);
        return mount_no_memory(p);
    }
    p->plan->ops[p->plan->count++] = (struct mount_op){kind, from, to, source};
    return 0;
}

static bool is_below(const char *path, const char *folder)
{
    size_t length = strcmp(folder, "/") ? strlen(folder) : 0;
    return !strncmp(path, folder, length) && path[length] == '/';
}

/* --- covering a folder --- */

static int show_entry(struct planning *p, const char *folder, const char *name)
{
    struct stat status;
    char target[PATH_LIMIT];
    const char *slash = strcmp(folder, "/") ? "/" : "";
    scope_free char *from = mem_printf("%s%s%s", folder, slash, name);
    scope_free char *to = mem_printf("%s/%s", p->stage, name);
    if (!from || !to)
        return mount_no_memory(p);
    if (lstat(from, &status) < 0)
        return 0; /* gone since then */
    if (S_ISLNK(status.st_mode)) {
        ssize_t length = readlink(from, target, sizeof target - 1);
        if (length < 0)
            return 0;
        target[length] = '\0';
        char *copy = mem_strdup(target);
        return copy ? add(p, MOUNT_OP_LINK, copy, take_pointer(&to), 0) : mount_no_memory(p);
    }
    enum mount_op_kind kind = S_ISDIR(status.st_mode) ? MOUNT_OP_DIRECTORY : MOUNT_OP_FILE;
    if (add(p, kind, NULL, mem_strdup(to), 0) < 0)
        return -1;
    return add(p, MOUNT_OP_SHOW, take_pointer(&from), take_pointer(&to), 0);
}

static int show_entries(struct planning *p, const char *folder)
{
    DIR *entries = opendir(folder);
    int result =
        entries ? 0 : error_errno(p->err, "cannot read %s, where a mount's folder is missing", folder);
    const struct dirent *entry;
    while (!result && (entry = readdir(entries)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            result = show_entry(p, folder, entry->d_name);
    if (entries)
        (void)closedir(entries); /* it was only read */
    return result;
}

/* A folder in memory that shows the folder's contents takes its place. */
static int cover(struct planning *p, const char *folder)
{
    for (size_t i = 0; i < p->covered.count; i++)
        if (!strcmp(p->covered.items[i], folder))
            return 0;
    if (text_list_take(&p->covered, mem_strdup(folder)) < 0)
        return mount_no_memory(p);
    char *options = mem_strdup("mode=0755");
    if (!options)
        return mount_no_memory(p);
    if (add(p, MOUNT_OP_COVER, options, mem_strdup(p->stage), 0) < 0 || show_entries(p, folder) < 0)
        return -1;
    if (!strcmp(folder, "/"))
        return add(p, MOUNT_OP_ROOT, NULL, mem_strdup(p->stage), 0);
    char *stage = mem_strdup(p->stage);
    return stage ? add(p, MOUNT_OP_SHOW, stage, mem_strdup(folder), 0) : mount_no_memory(p);
}

/* --- one place --- */

static bool is_file(const char *path)
{
    struct stat status;
    return path && stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

/* The length of the part of `to` that is there already: on this machine, or by an earlier mount. */
static size_t existing(const struct mount_request *requests, int at, const char *to)
{
    struct stat status;
    size_t length = 0;
    for (int i = 0; i < at; i++)
        if (is_below(to, requests[i].to) && strlen(requests[i].to) > length)
            length = strlen(requests[i].to);
    if (length)
        return length;
    scope_free char *part = mem_strdup(to);
    for (length = part ? strlen(to) : 0; length; part[length] = '\0') {
        if (stat(part, &status) == 0)
            return length;
        while (length && part[--length] != '/')
            ;
    }
    return 0;
}

static bool is_in_earlier(const struct mount_request *requests, int at)
{
    for (int i = 0; i < at; i++)
        if (is_below(requests[at].to, requests[i].to))
            return true;
    return false;
}

/* Covers first, so that "/" comes before all others and everything is made in the final tree. */
static int plan_covers(struct planning *p, const struct mount_request *requests, int count, bool root)
{
    for (int i = 0; i < count; i++) {
        size_t there = existing(requests, i, requests[i].to);
        if (is_in_earlier(requests, i) || there == strlen(requests[i].to) || (there == 0) != root)
            continue;
        scope_free char *folder = there ? mem_strndup(requests[i].to, there) : mem_strdup("/");
        if (!folder)
            return mount_no_memory(p);
        if (is_file(folder))
            return error_set(p->err, MUSTER_E_INVALID, "cannot mount %s: %s is a file", requests[i].to,
                             folder);
        if (cover(p, folder) < 0)
            return -1;
    }
    return 0;
}

static int plan_place(struct planning *p, const struct mount_request *requests, int at)
{
    const struct mount_request *r = &requests[at];
    /* The missing parts of `to` after the first `there` bytes; the last is a file for a file. */
    size_t there = existing(requests, at, r->to);
    bool file = is_file(r->from);
    for (size_t end = there; r->to[end];) {
        end += 1 + strcspn(r->to + end + 1, "/");
        enum mount_op_kind kind = file && !r->to[end] ? MOUNT_OP_FILE : MOUNT_OP_DIRECTORY;
        if (add(p, kind, NULL, mem_strndup(r->to, end), 0) < 0)
            return -1;
    }
    if (r->from)
        return add(p, MOUNT_OP_PLACE, NULL, mem_strdup(r->to), at);
    char *options =
        r->bytes ? mem_printf("mode=1777,size=%lld", (long long)r->bytes) : mem_strdup("mode=1777");
    return options ? add(p, MOUNT_OP_COVER, options, mem_strdup(r->to), 0) : mount_no_memory(p);
}

static int plan_all(struct planning *p, const struct mount_request *requests, int count)
{
    if (plan_covers(p, requests, count, true) < 0 || plan_covers(p, requests, count, false) < 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (plan_place(p, requests, i) < 0)
            return -1;
    for (int i = 0; i < count; i++)
        if (requests[i].read_only && add(p, MOUNT_OP_LOCK, NULL, mem_strdup(requests[i].to), 0) < 0)
            return -1;
    return 0;
}

/* --- the whole --- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct mount_request *)a)->to, ((const struct mount_request *)b)->to);
}

static int copy_sources(struct planning *p, const struct mount_request *requests, int count)
{
    p->plan->sources = mem_calloc((size_t)count + 1, sizeof *p->plan->sources);
    if (!p->plan->sources)
        return mount_no_memory(p);
    p->plan->source_count = count;
    for (int i = 0; i < count; i++)
        if (requests[i].from && !(p->plan->sources[i] = mem_strdup(requests[i].from)))
            return mount_no_memory(p);
    return 0;
}

int mount_plan_make(const struct mount_request *requests, int count, const char *stage,
                    struct mount_plan *plan, struct muster_error *err)
{
    struct planning p = {.plan = plan, .stage = stage, .err = err};
    *plan = (struct mount_plan){0};
    if (count > MOUNT_SOURCES_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%d mounts are more than %d", count, MOUNT_SOURCES_LIMIT);
    scope_free struct mount_request *sorted = mem_calloc((size_t)count + 1, sizeof *sorted);
    if (!sorted)
        return mount_no_memory(&p);
    if (count)
        memcpy(sorted, requests, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_path); /* a folder before its contents */
    int result = copy_sources(&p, sorted, count) < 0 ? -1 : plan_all(&p, sorted, count);
    text_list_free(&p.covered);
    if (result < 0)
        mount_plan_free(plan);
    return result;
}

void mount_plan_free(struct mount_plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        mem_free(plan->ops[i].from);
        mem_free(plan->ops[i].to);
    }
    for (int i = 0; i < plan->source_count; i++)
        mem_free(plan->sources[i]);
    mem_free(plan->ops);
    mem_free(plan->sources);
    *plan = (struct mount_plan){0};
}

/* --- execution --- */

/* Calls of Linux 5.2 and later; C libraries of many images do not have them. */
enum {
    CALL_OPEN_TREE = 428,
    CALL_MOVE_MOUNT = 429,
    TREE_CLONE = 1,
    TREE_RECURSIVE = 0x8000,
    MOVE_FROM_EMPTY_PATH = 4,
};

static int make_directory(const char *path)
{
    return mkdir(path, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int make_file(const char *path)
{
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : 0;
}

static int become_root(const char *path)
{
    if (chdir(path) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return -1;
    return umount2(".", MNT_DETACH) < 0 ? -1 : chdir("/");
}

/* A change of a mount must repeat its locked flags. */
static int lock(const char *path)
{
    static const struct {
        unsigned long shown, set;
    } flags[] = {{ST_NOSUID, MS_NOSUID},   {ST_NODEV, MS_NODEV},           {ST_NOEXEC, MS_NOEXEC},
                 {ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs status;
    unsigned long kept = 0;
    if (statvfs(path, &status) < 0)
        return -1;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (status.f_flag & flags[i].shown)
            kept |= flags[i].set;
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL);
}

static int execute(const struct mount_op *op, const int *sources)
{
    switch (op->kind) {
    case MOUNT_OP_COVER:
        return mount("tmpfs", op->to, "tmpfs", MS_NOSUID | MS_NODEV, op->from);
    case MOUNT_OP_DIRECTORY:
        return make_directory(op->to);
    case MOUNT_OP_FILE:
        return make_file(op->to);
    case MOUNT_OP_LINK:
        return symlink(op->from, op->to);
    case MOUNT_OP_SHOW:
        return mount(op->from, op->to, NULL, MS_BIND | MS_REC, NULL);
    case MOUNT_OP_ROOT:
        return become_root(op->to);
    case MOUNT_OP_PLACE:
        return (int)syscall(CALL_MOVE_MOUNT, sources[op->source], "", AT_FDCWD, op->to, MOVE_FROM_EMPTY_PATH);
    default: /* MOUNT_OP_LOCK */
        return lock(op->to);
    }
}

int mount_plan_execute(const struct mount_plan *plan)
{
    char directory[PATH_MAX];
    int sources[MOUNT_SOURCES_LIMIT], result = 0;
    if (!plan->count)
        return 0;
    bool known = getcwd(directory, sizeof directory) != NULL;
    for (int i = 0; i < plan->source_count; i++)
        sources[i] = -1;
    for (int i = 0; !result && i < plan->source_count; i++)
        if (plan->sources[i] && (sources[i] = (int)syscall(CALL_OPEN_TREE, AT_FDCWD, plan->sources[i],
                                                           TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC)) < 0)
            result = -1;
    for (int i = 0; !result && i < plan->count; i++)
        result = execute(&plan->ops[i], sources);
    const int why = errno;
    for (int i = 0; i < plan->source_count; i++)
        if (sources[i] >= 0)
            (void)close(sources[i]); /* it is mounted, or nothing will be */
    if (!result && known && chdir(directory) < 0 && chdir("/") < 0)
        return -1; /* the file at the same path now */
    errno = why;
    return result;
}
