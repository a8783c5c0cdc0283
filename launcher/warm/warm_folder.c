/* warm_folder.c - see warm_kept.h. */
#include "launcher/warm/warm_kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

void warm_folder_path(const char *runtime, unsigned uid, char path[PATH_MAX])
{
    if (runtime && *runtime == '/')
        (void)snprintf(path, PATH_MAX, "%s/muster", runtime);
    else
        (void)snprintf(path, PATH_MAX, "/tmp/muster-%u", uid);
}

int warm_folder_open(const char *path, bool make, struct warm_folder *folder, struct muster_error *err)
{
    struct stat status;
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_errno(err, "cannot make %s, the folder of kept templates", path);
    scope_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_errno(err, "cannot open %s, the folder of kept templates", path);
    if (status.st_uid != geteuid())
        return error_set(
            err, MUSTER_E_STATE,
            "%s, the folder of kept templates, belongs to user %u, and we are user %u: remove it, or "
            "set XDG_RUNTIME_DIR to a folder of your own",
            path, (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_mode & 077)
        return error_set(
            err, MUSTER_E_STATE,
            "%s, the folder of kept templates, has mode %04o, so that others may enter it: chmod 700 %s",
            path, (unsigned)(status.st_mode & 07777), path);
    (void)snprintf(folder->path, sizeof folder->path, "%s", path);
    folder->fd = take_fd(&fd);
    return 0;
}

int warm_folder_lock(const struct warm_folder *folder, struct muster_error *err)
{
    scope_close int fd = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, "cannot open %s/lock", folder->path);
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return error_errno(err, "cannot lock %s/lock", folder->path);
    return take_fd(&fd);
}

void warm_folder_name(const void *key, size_t length, char name[WARM_NAME_SIZE])
{
    (void)snprintf(name, WARM_NAME_SIZE, "%016llx" WARM_SUFFIX,
                   (unsigned long long)text_hash(TEXT_HASH_START, key, length));
}

/* By the open folder, which no link can lead elsewhere, and whose path may be longer than an address holds.
 */
static struct sockaddr_un address_of(const struct warm_folder *folder, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder->fd, name);
    return address;
}

static int check_peer(int fd, const struct warm_folder *folder, const char *name, struct muster_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_errno(err, "cannot read which user listens at %s/%s", folder->path, name);
    if (peer.uid != geteuid())
        return error_set(err, MUSTER_E_STATE, "user %u listens at %s/%s, and we are user %u",
                         (unsigned)peer.uid, folder->path, name, (unsigned)geteuid());
    return 0;
}

int warm_folder_connect(const struct warm_folder *folder, const char *name, struct muster_error *err)
{
    const struct sockaddr_un address = address_of(folder, name);
    scope_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        if (errno == ECONNREFUSED || errno == ENOENT)
            return error_set(err, MUSTER_E_NOT_FOUND, "no template listens at %s/%s", folder->path, name);
        return error_errno(err, "cannot connect to the template at %s/%s", folder->path, name);
    }
    return check_peer(fd, folder, name, err) < 0 ? -1 : take_fd(&fd);
}

int warm_folder_listen(const struct warm_folder *folder, const char *name, struct muster_error *err)
{
    enum { BACKLOG = 64 };
    const struct sockaddr_un address = address_of(folder, name);
    scope_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, "cannot make a socket");
    if (unlinkat(folder->fd, name, 0) < 0 && errno != ENOENT)
        return error_errno(err, "cannot remove %s/%s, at which no process listens", folder->path, name);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        return error_errno(err, "cannot listen at %s/%s", folder->path, name);
    return take_fd(&fd);
}
