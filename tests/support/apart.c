/* apart.c - starts a test apart from those beside it: in a network of its own, where nobody takes its ports,
 * its local sockets' names or its places in queues, and with a /dev/shm of its own.
 *
 *   apart PROGRAM [ARGUMENT...]
 *
 * Becomes the program, which finds TEST_APART=1 in its environment. It needs root: for others the program
 * shares the machine with whatever else runs there. */
#include <errno.h>
#include <linux/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

static int raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int result = ioctl(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP;
    if (!result)
        result = ioctl(fd, SIOCSIFFLAGS, &request);
    (void)close(fd); /* nothing was written */
    return result;
}

/* What the machine mounts later is still seen; what the test mounts is not seen outside. */
static int mount_shared_memory(void)
{
    if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL))
        return -1;
    return mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
}

/* 0, or -1 when it was said why not. */
static int go_apart(void)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWNS)) {
        if (errno != EPERM)
            fprintf(stderr, "apart: not possible here: %s\n", strerror(errno));
        return 0;
    }
    if (raise_loopback() || mount_shared_memory() || setenv("TEST_APART", "1", 1)) {
        fprintf(stderr, "apart: loopback or /dev/shm: %s\n", strerror(errno));
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "apart: no program\n");
        return 2;
    }
    if (go_apart())
        return 2;
    execvp(argv[1], argv + 1);
    fprintf(stderr, "apart: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
