/* secret_file.c - see secret_file.h. */
#include "rendezvous/security/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { TEXT_LIMIT = 1024 }; /* a secret is 80 bytes; a longer file is not one */

enum secret_exposure secret_file_exposure(mode_t mode, uid_t owner, uid_t user)
{
    if (mode & (S_IROTH | S_IWOTH))
        return SECRET_OPEN_TO_ALL;
    return (mode & (S_IRGRP | S_IWGRP)) && owner == user ? SECRET_OPEN_TO_GROUP : SECRET_PRIVATE;
}

const char *secret_exposure_words(enum secret_exposure exposure)
{
    static const char *const words[] = {
        [SECRET_PRIVATE] = "",
        [SECRET_OPEN_TO_GROUP] = "its group can read or write it",
        [SECRET_OPEN_TO_ALL] = "every user of this machine can read or write it",
    };
    return words[exposure];
}

/* How many bytes of text were filled; -1 with errno. */
static ssize_t read_text(int fd, char text[TEXT_LIMIT])
{
    size_t length = 0;
    while (length < TEXT_LIMIT) {
        ssize_t got = read(fd, text + length, TEXT_LIMIT - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        length += (size_t)got;
    }
    return (ssize_t)length;
}

static int parse_file(int fd, const char *path, struct job_secret *out, struct muster_error *err)
{
    char text[TEXT_LIMIT];
    struct muster_error why = {0};
    ssize_t length = read_text(fd, text);
    int failed = length < 0;
    if (failed)
        error_set(err, MUSTER_E_INVALID, "secret file %s: %s", path, strerror(errno));
    else if ((failed = secret_parse(text, (size_t)length, out, &why)) != 0)
        error_set(err, MUSTER_E_INVALID, "secret file %s holds no job secret: %s", path, why.text);
    secret_wipe(text, sizeof text);
    return failed ? -1 : 0;
}

int secret_file_read(const char *path, struct job_secret *out, enum secret_exposure *exposure, mode_t *mode,
                     struct muster_error *err)
{
    struct stat about;
    /* without O_NONBLOCK a FIFO of that name would be waited for */
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return error_set(err, MUSTER_E_INVALID,
                         "secret file %s: %s; muster secret makes one, which all nodes need", path,
                         strerror(errno));
    if (fd < 0 || fstat(fd, &about) < 0)
        return error_set(err, MUSTER_E_INVALID, "secret file %s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return error_set(err, MUSTER_E_INVALID, "secret file %s is not a regular file", path);
    *mode = about.st_mode & 07777;
    *exposure = secret_file_exposure(about.st_mode, about.st_uid, geteuid());
    return parse_file(fd, path, out, err);
}
