/* linger.c - preloaded into a worker that step_tap has started. All its work is done, and its process stays
 *
 *   - while there is STEP_FOLDER/linger.R, R being its rank;
 *   - until its world and its beats are recorded: processes that outlive a worker may be killed as soon as it
 * has ended. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/env_names.h"

enum { LOOK_US = 20000 };

static void wait_for_test(void)
{
    char path[4096];
    const char *folder = getenv("STEP_FOLDER"), *rank = getenv(ENV_RANK);
    if (!folder || !rank || snprintf(path, sizeof path, "%s/linger.%s", folder, rank) >= (int)sizeof path)
        return;
    while (access(path, F_OK) == 0)
        (void)usleep(LOOK_US);
}

/* With the end of the beats the recorder ends. The other end of the notices is its, and that of the child
 * which learns of the world: it ends with both. */
static void wait_for_recorder(void)
{
    const char *beats = getenv(ENV_HEARTBEAT_FD), *notices = getenv(ENV_NOTICE_FD);
    if (!beats || !notices)
        return;
    char rest[256];
    struct pollfd entry = {.fd = atoi(notices), .events = POLLIN};
    (void)close(atoi(beats)); /* written to for the last time */
    while (poll(&entry, 1, -1) < 0 || recv(entry.fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
}

__attribute__((destructor)) static void linger(void)
{
    wait_for_test();
    wait_for_recorder();
}
