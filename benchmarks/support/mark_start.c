/* mark_start.c - a worker that only records when it was started: appends the monotonic time to a file.
 *
 *     mark_start FILE */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/clock.h"

int main(int argc, char *argv[])
{
    char line[32];
    int size = snprintf(line, sizeof line, "%lld\n", (long long)clock_now(NULL).ns);
    int fd = argc == 2 ? open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    /* Short appends are whole: others write to the same file. */
    return fd < 0 || write(fd, line, (size_t)size) != size;
}
