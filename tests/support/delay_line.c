/* delay_line.c - a slow wire between two TAP interfaces, for kernels without netem.
 *
 *   delay_line NAME NAME MILLISECONDS
 *
 * Makes both interfaces (they end with this program), says "ready" on stdout, and from then on gives what
 * comes out of one into the other so much later. A TAP's frames come as on a real wire: segmented, with
 * checksums. Ends at SIGTERM, and when stdin is closed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/support/delay_queue.h"

enum { FRAMES = 8192, LONGEST_DELAY_MS = 60000 };

/* An end of the wire, and what travels away from it. */
struct end {
    int fd;
    struct delay_queue *away;
};

/* A descriptor, or -1 when it was said why not. */
static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    if (strlen(name) >= sizeof request.ifr_name) {
        fprintf(stderr, "delay_line: '%s': an interface's name has %zu letters at most\n", name,
                sizeof request.ifr_name - 1);
        return -1;
    }
    memcpy(request.ifr_name, name, strlen(name) + 1);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) {
        fprintf(stderr, "delay_line: %s: %s\n", name, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

/* 0, or -1 with errno. Everything that this end has for us goes onto the wire. */
static int take(struct end *end, struct instant now)
{
    unsigned char frame[DELAY_FRAME_LIMIT];
    for (;;) {
        ssize_t n = read(end->fd, frame, sizeof frame);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR || errno == EIO ? 0 : -1; /* EIO: it is down */
        (void)delay_queue_push(end->away, frame, (size_t)n, now);              /* counted */
    }
}

/* Frames that have arrived come out; a frame that the interface does not take is lost, as on any wire. */
static void give(struct delay_queue *queue, int fd, struct instant now)
{
    struct delay_frame frame;
    while (delay_queue_pop(queue, now, &frame)) {
        if (write(fd, frame.data, frame.length) < 0 && errno != EAGAIN && errno != EIO)
            fprintf(stderr, "delay_line: a frame of %zu bytes is lost: %s\n", frame.length, strerror(errno));
    }
}

/* Until stdin is closed: 0, or -1 with errno. */
static int relay(struct end ends[2])
{
    for (;;) {
        struct instant due = instant_min(delay_queue_due(ends[0].away), delay_queue_due(ends[1].away));
        struct instant now = clock_now(NULL);
        bool empty = due.ns == INSTANT_NEVER.ns;
        int64_t left = empty || instant_reached(now, due) ? 0 : instant_diff_ns(due, now);
        struct timespec wait = instant_timespec((struct instant){left});
        struct pollfd ready[] = {{ends[0].fd, POLLIN, 0}, {ends[1].fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        if (ppoll(ready, 3, empty ? NULL : &wait, NULL) < 0 && errno != EINTR)
            return -1;
        if (ready[2].revents)
            return 0;
        now = clock_now(NULL);
        for (int i = 0; i < 2; i++) {
            if (take(&ends[i], now))
                return -1;
            give(ends[i].away, ends[!i].fd, now);
        }
    }
}

int main(int argc, char **argv)
{
    char *end = NULL;
    long ms = argc == 4 ? strtol(argv[3], &end, 10) : -1;
    if (ms < 0 || ms > LONGEST_DELAY_MS || !end || *end) {
        fprintf(stderr, "usage: delay_line NAME NAME MILLISECONDS (up to %d)\n", LONGEST_DELAY_MS);
        return 2;
    }
    GUARD(guard_delay_queue) struct delay_queue *there = delay_queue_create(ms * NS_PER_MS, FRAMES);
    GUARD(guard_delay_queue) struct delay_queue *back = delay_queue_create(ms * NS_PER_MS, FRAMES);
    if (!there || !back) {
        fprintf(stderr, "delay_line: no memory\n");
        return 1;
    }
    scope_close int one = open_tap(argv[1]);
    scope_close int other = open_tap(argv[2]);
    if (one < 0 || other < 0 || puts("ready") == EOF || fflush(stdout))
        return 1;
    struct end ends[] = {{one, there}, {other, back}};
    int failed = relay(ends);
    if (failed)
        fprintf(stderr, "delay_line: %s\n", strerror(errno));
    fprintf(stderr, "delay_line: %" PRIu64 " and %" PRIu64 " frames were lost\n", delay_queue_lost(there),
            delay_queue_lost(back));
    return failed ? 1 : 0;
}
