/* fake_nccl_ras.c - the fake's RAS service: where NCCL_RAS_ADDR is set, the process of rank 0 answers there
 * with how many operations each rank's device has started. It takes commands as NCCL's own does. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/gpu/nccl/fake_nccl.h"

struct service {
    int fd, size;
    struct fake_shared *shared;
};

static void answer_status(const struct service *service, int fd)
{
    char text[2048];
    uint64_t most = 0;
    for (int rank = 0; rank < service->size; rank++) {
        uint64_t started = atomic_load(&service->shared->members[rank].started);
        most = started > most ? started : most;
    }
    int length = snprintf(text, sizeof text, "fake NCCL RAS: %d ranks\n", service->size);
    for (int rank = 0; rank < service->size; rank++) {
        uint64_t started = atomic_load(&service->shared->members[rank].started);
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "Rank %d has started %llu operations%s\n",
                     rank, (unsigned long long)started, started < most ? ": fewer than others" : "");
    }
    (void)!write(fd, text, (size_t)length);
}

/* Lines as NCCL takes them: a status is the last answer, and a time-out is acknowledged. */
static void answer(const struct service *service, int fd)
{
    char line[64];
    for (size_t length = 0; length < sizeof line - 1 && recv(fd, line + length, 1, 0) == 1;) {
        if (line[length] != '\n') {
            length++;
            continue;
        }
        line[length] = '\0';
        length = 0;
        if (!strcasecmp(line, "status") || !strcasecmp(line, "verbose status")) {
            answer_status(service, fd);
            return;
        }
        if (!strncasecmp(line, "timeout ", 8) && atoi(line + 8) > 0)
            (void)!write(fd, "OK\n", 3);
        else
            (void)!write(fd, "ERROR: Unknown command\n", 23);
    }
}

static void *serve(void *context)
{
    struct service *service = context;
    for (;;) {
        int fd = accept(service->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        answer(service, fd);
        (void)close(fd);
    }
}

/* The mapping and the thread stay until the process ends. */
void fake_ras_start(int pid, int fd, int size)
{
    const char *given = getenv("NCCL_RAS_ADDR"), *colon = given ? strrchr(given, ':') : NULL;
    struct service *service = colon ? calloc(1, sizeof *service) : NULL;
    pthread_t thread;
    if (!service)
        return;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)atoi(colon + 1)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;
    service->size = size;
    service->shared = fake_shared_map(pid, fd);
    service->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(service->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!service->shared || bind(service->fd, (const struct sockaddr *)&address, sizeof address) ||
        listen(service->fd, 16) || pthread_create(&thread, NULL, serve, service)) {
        (void)close(service->fd); /* another one has the port: it answers */
        fake_shared_unmap(service->shared);
        free(service);
        return;
    }
    (void)pthread_detach(thread);
}
