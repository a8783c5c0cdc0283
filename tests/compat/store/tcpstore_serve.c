/* tcpstore_serve.c - our TCPStore server as a program, for clients that are not ours.
 *
 *     tcpstore_serve [PORT [ADDRESS]]
 *
 * Prints its port. Then each line on stdin is a command: "round" starts a new round, "stats" prints requests,
 * keys, connections and parked clients. End of input ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/text.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

static int complain(const struct muster_error *err)
{
    fprintf(stderr, "tcpstore_serve: %s\n", err->text);
    return 1;
}

static int obey(struct tcpstore_server *server, const char *line, struct muster_error *err)
{
    struct tcpstore_server_stats stats;
    if (!strcmp(line, "round\n")) {
        if (tcpstore_server_new_round(server, err))
            return -1;
        puts("ok");
    } else {
        if (tcpstore_server_stats(server, &stats, err))
            return -1;
        printf("%llu %zu %zu %zu\n", (unsigned long long)stats.requests, stats.store.keys, stats.connections,
               stats.store.parked);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int to = STDERR_FILENO;
    struct log_sink log = {log_write_to_fd, &to, LOG_LEVEL_INFO, "tcpstore_serve"};
    struct tcpstore_server_options options = {
        .log = &log, .address = argc > 2 ? argv[2] : NULL, .limits = store_limits_default()};
    options.limits.total_bytes = tcpstore_budget(0); /* the smallest that a job has */
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    int64_t port = 0;
    char line[64];
    if (argc > 1 && (!text_int64(argv[1], &port) || port < 0 || port > 65535)) {
        fprintf(stderr, "tcpstore_serve: \"%s\" is not a port\n", argv[1]);
        return 2;
    }
    options.port = (uint16_t)port;
    if (tcpstore_server_start(&options, &server, &err))
        return complain(&err);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%u\n", tcpstore_server_port(server));
    int failed = 0;
    while (!failed && fgets(line, sizeof line, stdin))
        failed = obey(server, line, &err);
    tcpstore_server_destroy(server);
    return failed ? complain(&err) : 0;
}
