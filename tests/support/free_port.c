/* free_port.c - see free_port.h; tests/e2e/harness/ports.py does the same, by the same names. */
#include "tests/support/free_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK = 32, LOWEST = 10240, HIGHEST = 32768 };

/* The end of the ports that we may take: where the kernel's own range begins. */
static unsigned highest(void)
{
    unsigned first_given = HIGHEST;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (!file)
        return HIGHEST;
    bool read = fscanf(file, "%u", &first_given) == 1;
    (void)fclose(file); /* nothing was written */
    return read && first_given >= 2 * LOWEST && first_given <= UINT16_MAX ? first_given : HIGHEST;
}

/* A local socket's name is had by one process at a time, and given back by its end. */
static bool claim(unsigned block)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "muster-test-ports-%u", block);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (fd < 0 || !bind(fd, (struct sockaddr *)&name, size))
        return fd >= 0; /* it stays open */
    (void)close(fd);    /* it was not bound */
    return false;
}

static bool is_free(unsigned port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool is = !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
              !bind(fd, (struct sockaddr *)&any, sizeof any) && !listen(fd, 1);
    (void)close(fd); /* it was asked only */
    return is;
}

uint16_t test_free_port(void)
{
    static unsigned next, end;
    for (unsigned tried = 0, first = (unsigned)getpid(); tried < HIGHEST; tried++) {
        unsigned blocks = (highest() - LOWEST) / BLOCK, block = LOWEST + (first + tried) % blocks * BLOCK;
        if (next == end && claim(block)) {
            next = block;
            end = block + BLOCK;
        }
        while (next < end) {
            unsigned port = next++;
            if (is_free(port))
                return (uint16_t)port;
        }
    }
    fprintf(stderr, "free_port: no port is free\n");
    return 0;
}
