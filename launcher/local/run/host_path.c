/* host_path.c - see host_path.h. */
#include "launcher/local/run/host_path.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { FOLDER_MODE = 0755, FILE_MODE = 0644 };

/* What each type needs. */
static const struct {
    mode_t format; /* 0: anything */
    const char *name;
    bool make;
} needs[LOCAL_HOST_TYPES] = {
    [LOCAL_HOST_ANY] = {0, "", false},
    [LOCAL_HOST_DIRECTORY_OR_CREATE] = {S_IFDIR, "a folder", true},
    [LOCAL_HOST_DIRECTORY] = {S_IFDIR, "a folder", false},
    [LOCAL_HOST_FILE_OR_CREATE] = {S_IFREG, "a file", true},
    [LOCAL_HOST_FILE] = {S_IFREG, "a file", false},
    [LOCAL_HOST_SOCKET] = {S_IFSOCK, "a Unix socket", false},
    [LOCAL_HOST_CHAR_DEVICE] = {S_IFCHR, "a character device", false},
    [LOCAL_HOST_BLOCK_DEVICE] = {S_IFBLK, "a block device", false},
};

static int host_path_make(const char *path, enum local_host_type type, struct muster_error *err)
{
    if (needs[type].format == S_IFDIR)
        return io_make_directories(path, FOLDER_MODE, err);
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    return fd < 0 ? error_errno(err, "cannot make the hostPath %s", path) : 0;
}

int host_path_prepare(const char *path, enum local_host_type type, struct muster_error *err)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        if (!needs[type].format || (status.st_mode & S_IFMT) == needs[type].format)
            return 0;
        return error_set(err, MUSTER_E_INVALID, "the hostPath %s is not %s, which its type %s needs", path,
                         needs[type].name, local_host_type_name(type));
    }
    bool absent = errno == ENOENT || errno == ENOTDIR;
    if (!absent)
        return error_errno(err, "cannot look at the hostPath %s", path);
    if (needs[type].make)
        return host_path_make(path, type, err);
    if (type == LOCAL_HOST_ANY)
        return error_set(err, MUSTER_E_NOT_FOUND, "the hostPath %s does not exist on this machine", path);
    return error_set(err, MUSTER_E_INVALID,
                     "the hostPath %s does not exist on this machine, and its type %s needs %s there", path,
                     local_host_type_name(type), needs[type].name);
}
