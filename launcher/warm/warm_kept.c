/* warm_kept.c - see warm_kept.h. */
#include "launcher/warm/warm_kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/warm/warm_keeper.h"
#include "launcher/warm/warm_message.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { KEY_PATIENCE_MS = 1000 };

/* --- messages --- */

static int send_with(int fd, const char *text, const int *fds, int count, struct muster_error *err)
{
    enum { FDS_LIMIT = 8 };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_LIMIT * sizeof(int))];
    } control = {0};
    struct iovec piece = {(char *)text, strlen(text)};
    const size_t bytes = (size_t)count * sizeof *fds;
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (count) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, bytes);
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return error_errno(err, "cannot send a request to the kept template");
    return 0;
}

static int make_memfd(const struct buffer *key, struct muster_error *err)
{
    scope_close int fd = memfd_create("muster-template-key", MFD_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot make a memfd for the key of a template");
    if (io_write_all(fd, key->data, key->length, "the key of a template", err) < 0)
        return -1;
    return take_fd(&fd);
}

/* --- the existing template, or a new one --- */

int warm_kept_connect(struct warm_kept *kept, struct muster_error *err)
{
    guard_close(&kept->control);
    kept->control = warm_folder_connect(&kept->folder, kept->name, err);
    return kept->control < 0 ? -1 : 0;
}

static int start_template(struct warm_kept *kept, const struct spawn_options *options,
                          struct text_list *environment, struct muster_error *err)
{
    int ends[2];
    scope_close int listener = warm_folder_listen(&kept->folder, kept->name, err);
    scope_close int key = listener < 0 ? -1 : make_memfd(&kept->key, err);
    if (key < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe for the kept template");
    kept->life = ends[1];
    scope_close int its_life = ends[0];
    if (text_list_take(environment, mem_printf(WARM_KEPT_ENV "=%.9g %s/%s", kept->seconds, kept->folder.path,
                                               kept->name)) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the kept template's environment");
    /* above the numbers that they become: none overwrites another before it is copied */
    int fds[] = {listener, its_life, key}, high[3] = {-1, -1, -1}, failed = 0;
    for (int i = 0; i < 3; i++) {
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, SPAWN_EXTRA_FD + SPAWN_EXTRA_LIMIT);
        failed |= high[i] < 0;
    }
    struct spawn_options its = *options;
    its.envp = environment->items;
    its.outlives = true;
    its.mark = 0;
    its.cpus = NULL;
    its.extra_count = 3;
    memcpy(its.extra_fds, high, sizeof high);
    int result = failed ? error_errno(err, "cannot copy a descriptor for the kept template")
                        : warm_keeper_detached_start(&its, err);
    for (int i = 0; i < 3; i++)
        guard_close(&high[i]);
    kept->started = result == 0;
    return result;
}

/* The difference to the first template that tells its key. */
struct comparison {
    const struct buffer *key;
    char *field;
    size_t size;
};

static void compare_key(void *context, const char *name, const char *answer, int fd)
{
    enum { KEY_LIMIT = 4 << 20 };
    const struct comparison *comparison = context;
    char path[64];
    scope_buffer other = {0};
    (void)name;
    (void)answer;
    if (*comparison->field || fd < 0)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (io_read_file(path, KEY_LIMIT, &other, NULL) == 0 && other.length)
        warm_key_difference(comparison->key->data, comparison->key->length, other.data, other.length,
                            comparison->field, comparison->size);
}

static int find_or_start(struct warm_kept *kept, const struct spawn_options *options,
                         struct text_list *environment, struct muster_error *err)
{
    struct muster_error none = {0};
    scope_close int lock = warm_folder_lock(&kept->folder, err);
    if (lock < 0)
        return -1;
    if (warm_kept_connect(kept, &none) == 0)
        return 0;
    if (none.code != MUSTER_E_NOT_FOUND)
        return error_set(err, none.code, "%s", none.text);
    struct comparison comparison = {&kept->key, kept->differs, sizeof kept->differs};
    (void)warm_kept_ask_all(&kept->folder, "key", KEY_PATIENCE_MS, compare_key, &comparison, NULL,
                            &none); /* for the log alone */
    return start_template(kept, options, environment, err) < 0 ? -1 : warm_kept_connect(kept, err);
}

int warm_kept_open(struct warm_kept *kept, const struct warm_keep *keep, const struct spawn_options *options,
                   struct muster_error *err)
{
    scope_text_list environment = {0};
    struct warm_key_subject subject = keep->subject;
    char path[PATH_MAX];
    *kept = (struct warm_kept){
        .folder.fd = -1, .control = -1, .life = -1, .seconds = keep->seconds, .mark = keep->mark};
    if (getpid() == 1)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "nothing outlives process 1 of a container, which this agent is");
    if (warm_key_environment(subject.environment, &environment) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the kept template's environment");
    subject.environment = environment.items;
    if (warm_key_write(&subject, &kept->key, err) < 0)
        return -1;
    warm_folder_name(kept->key.data, kept->key.length, kept->name);
    warm_folder_path(getenv("XDG_RUNTIME_DIR"), (unsigned)geteuid(), path);
    if (warm_folder_open(path, true, &kept->folder, err) < 0)
        return -1;
    return find_or_start(kept, options, &environment, err);
}

int warm_kept_greet(struct warm_kept *kept, struct muster_error *err)
{
    return send_with(kept->control, "hello", NULL, 0, err);
}

int warm_kept_request(struct warm_kept *kept, int template_end, int reaper_end, struct muster_error *err)
{
    char text[128];
    scope_close int key = make_memfd(&kept->key, err);
    if (key < 0)
        return -1;
    scope_close int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (self < 0)
        return error_errno(err, "cannot open /proc/self/exe");
    (void)snprintf(text, sizeof text, "job %.9g %llu", kept->seconds, (unsigned long long)kept->mark);
    const int fds[] = {key, template_end, reaper_end, self, STDIN_FILENO, STDERR_FILENO};
    return send_with(kept->control, text, fds, sizeof fds / sizeof *fds, err);
}

void warm_kept_close(struct warm_kept *kept)
{
    guard_close(&kept->control);
    guard_close(&kept->life);
    guard_close(&kept->folder.fd);
    buffer_free(&kept->key);
    kept->control = kept->life = kept->folder.fd = -1;
}

/* --- all that there are --- */

/* An answer and the descriptor that it carries, -1: none. -1: it has ended. */
static ssize_t receive_with(int fd, char answer[WARM_MESSAGE_LIMIT], int *carried)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec piece = {answer, WARM_MESSAGE_LIMIT - 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *carried = -1;
    if (got <= 0)
        return -1;
    answer[got] = '\0';
    if (message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.header.cmsg_type == SCM_RIGHTS)
        memcpy(carried, CMSG_DATA(&control.header), sizeof *carried);
    return got;
}

static int ask(const struct warm_folder *folder, const char *name, const char *text, int patience_ms,
               char answer[WARM_MESSAGE_LIMIT], int *carried, struct muster_error *err)
{
    scope_close int fd = warm_folder_connect(folder, name, err);
    if (fd < 0 || send_with(fd, text, NULL, 0, err) < 0)
        return -1;
    struct pollfd wait = {fd, POLLIN, 0};
    if (poll(&wait, 1, patience_ms) <= 0)
        return error_set(err, MUSTER_E_TIMEOUT, "the template at %s/%s does not answer: it may still import",
                         folder->path, name);
    if (receive_with(fd, answer, carried) < 0)
        return error_set(err, MUSTER_E_IO, "the template at %s/%s has ended", folder->path, name);
    return 0;
}

int warm_kept_ask_all(const struct warm_folder *folder, const char *text, int patience_ms,
                      void (*found)(void *context, const char *name, const char *answer, int fd),
                      void *context, struct buffer *complaint, struct muster_error *err)
{
    char answer[WARM_MESSAGE_LIMIT];
    scope_close int copy = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list)
        return error_errno(err, "cannot read %s", folder->path);
    copy = -1; /* the list's */
    for (struct dirent *entry; (entry = readdir(list));) {
        struct muster_error failed = {0};
        const size_t length = strlen(entry->d_name), suffix = sizeof WARM_SUFFIX - 1;
        if (!(length > suffix && length < WARM_NAME_SIZE &&
              !strcmp(entry->d_name + length - suffix, WARM_SUFFIX)))
            continue;
        int carried = -1;
        if (ask(folder, entry->d_name, text, patience_ms, answer, &carried, &failed) == 0)
            found(context, entry->d_name, answer, carried);
        else if (failed.code != MUSTER_E_NOT_FOUND && complaint)
            buffer_printf(complaint, "%s\n", failed.text);
        guard_close(&carried);
    }
    (void)closedir(list);
    return 0;
}
