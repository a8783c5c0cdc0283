/* shout.c - a loud worker for benchmarks/logs.py and for tests: writes BYTES bytes of lines of LENGTH bytes,
 * by writes of 8 KiB as Python's and C's buffered streams make them.
 *
 *     shout BYTES [LENGTH] */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 8192, LENGTH_LIMIT = 65536 };

int main(int argc, char *argv[])
{
    static char lines[CHUNK + LENGTH_LIMIT];
    long long total = argc > 1 ? strtoll(argv[1], NULL, 10) : 0, at = 0;
    long length = argc > 2 ? strtol(argv[2], NULL, 10) : 100;
    if (total <= 0 || length < 1 || length > LENGTH_LIMIT)
        return 2;
    memset(lines, '.', sizeof lines);
    for (size_t i = (size_t)length - 1; i < sizeof lines; i += (size_t)length)
        lines[i] = '\n';
    while (at < total) {
        size_t size = total - at < CHUNK ? (size_t)(total - at) : CHUNK;
        ssize_t done = write(STDOUT_FILENO, lines + at % length, size);
        if (done < 0 && errno != EINTR)
            return 1;
        at += done > 0 ? done : 0;
    }
    return 0;
}
