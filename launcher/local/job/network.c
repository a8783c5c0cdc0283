/* network.c - see network.h. A name of an abstract socket belongs to one process of a network namespace,
 * as the loopback addresses do, and is released when it ends. */
#include "launcher/local/job/network.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/guard.h"

int network_claim(int *fd)
{
    scope_close int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *fd = -1;
    for (int x = NETWORK_FIRST; claim >= 0 && x <= NETWORK_LAST; x++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "muster-local-127.%d", x);
        if (bind(claim, (struct sockaddr *)&name,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0) {
            *fd = take_fd(&claim);
            return x;
        }
    }
    return NETWORK_FIRST;
}
