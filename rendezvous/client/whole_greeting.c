/* whole_greeting.c - see whole_greeting.h. */
#include "rendezvous/client/whole_greeting.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/address.h"

enum { GREETING_SIZE = 64, MECHANISM_AT = 12 };

/* -1 if there is no socket, or the address cannot be reached from here. */
static int connect_to(const char *host, uint16_t port)
{
    struct address to;
    if (!address_parse(host, port, &to))
        return -1;
    int fd = socket(to.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, &to.of.any, to.length) && errno != EINPROGRESS) {
        (void)close(fd); /* nothing was written */
        fd = -1;
    }
    return fd;
}

void whole_greeting_step(struct whole_greeting *greeting, const char *host, uint16_t port, bool secret)
{
    if (greeting->sent)
        return;
    if (!greeting->open) {
        greeting->fd = connect_to(host, port);
        greeting->open = greeting->fd >= 0;
        return;
    }
    const char *mechanism = secret ? "CURVE" : "NULL";
    unsigned char bytes[GREETING_SIZE] = {0xff, [9] = 0x7f, [10] = 3}; /* version 3.0; the rest is zeros */
    memcpy(bytes + MECHANISM_AT, mechanism, strlen(mechanism));
    /* The first bytes of a connection, and few: all of them or none. */
    greeting->sent = send(greeting->fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof bytes;
    if (!greeting->sent)
        whole_greeting_close(greeting);
}

void whole_greeting_close(struct whole_greeting *greeting)
{
    if (greeting->open)
        (void)close(greeting->fd); /* its message has been sent or cannot be */
    *greeting = (struct whole_greeting){0};
}
