/* warm_worker.c - see warm_worker.h. */
#include "launcher/warm/warm_worker.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/process/descendants.h"
#include "launcher/warm/warm_message.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

static int make_payload(const struct spawn_options *options, struct muster_error *err)
{
    scope_buffer payload = {0};
    if (warm_payload_write(options->argv, options->envp, &payload) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the request of a worker");
    scope_close int fd = memfd_create("muster-request", MFD_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot make a memfd for the request of a worker");
    if (io_write_all(fd, payload.data, payload.length, "the request of a worker", err) < 0)
        return -1;
    return take_fd(&fd);
}

int warm_worker_request(int socket, pid_t parent, unsigned number, const struct spawn_options *options,
                        struct muster_error *err)
{
    enum { FDS_LIMIT = 3 + SPAWN_EXTRA_LIMIT };
    int fds[FDS_LIMIT], count = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    scope_buffer text = {0};
    scope_close int payload = make_payload(options, err);
    if (payload < 0)
        return -1;
    if (warm_request_write(number, parent, options->cpus, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the request of a worker");
    fds[count++] = payload;
    fds[count++] = options->out_fd;
    fds[count++] = options->err_fd;
    for (int i = 0; i < options->extra_count; i++)
        fds[count++] = options->extra_fds[i];
    struct iovec piece = {text.data, text.length};
    size_t bytes = (size_t)count * sizeof *fds;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(bytes)};
    control.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, bytes);
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? error_errno(err, "cannot send a request to the template") : 0;
}

bool warm_worker_has_parent(pid_t pid, pid_t parent)
{
    char path[64];
    struct descendants_process process;
    scope_buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return io_read_file(path, 4096, &text, NULL) == 0 &&
           descendants_parse_stat(text.data, text.length, &process) && process.parent == parent;
}
