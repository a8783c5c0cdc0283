/* kernel_log.c - see kernel_log.h. */
#include "proto/kernel_log.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

bool kernel_log_read(int fd, int limit, void (*take)(void *context, char *record), void *context)
{
    enum { RECORD_LIMIT = 8192 };
    char record[RECORD_LIMIT + 1];
    bool lost = false;
    for (int i = 0; i < limit; i++) {
        const ssize_t length = read(fd, record, RECORD_LIMIT);
        if (length < 0 && (errno == EPIPE || errno == EINVAL))
            lost = true; /* the next read gives the oldest record that is left, or the one after a long one */
        else if (length == 0 || (length < 0 && errno != EINTR))
            break;
        else if (length > 0) {
            record[length] = '\0';
            take(context, record);
        }
    }
    return lost;
}
