/* store_bare.c - the least that a TCPStore server can do, as the physical limit for tcpstore.py and store.py.
 *
 *     store_bare [VALUE_BYTES]
 *
 * One epoll loop, one recv and one send for each request, and nothing else: no key is looked at or
 * kept, every wait is over at once, and every reply has fixed bytes of the size that a real server sends (a
 * value has VALUE_BYTES bytes, 16 by default). Prints its port; ends with its standard input. */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/tcpstore/tcpstore.h"

enum { PEERS = 1024, INPUT = 64 << 10, OUTPUT = 64 << 10, EVENTS = 64 };

/* The bytes of a request that has not arrived whole. */
struct peer {
    size_t length;
    char *input; /* INPUT bytes */
};

struct bare {
    int epoll, listener;
    size_t value;
    struct peer peers[PEERS]; /* by descriptor */
    size_t length;
    char output[OUTPUT];
};

static const char *body_of(uint8_t query)
{
    static const char *const bodies[] = {
#define BODY(symbol, name, body) [symbol] = body,
        TCPSTORE_QUERIES(BODY)
#undef BODY
    };
    return query < TCPSTORE_QUERY_COUNT ? bodies[query] : NULL;
}

static uint64_t number_at(const char *data)
{
    uint64_t number;
    memcpy(&number, data, sizeof number);
    return le64toh(number);
}

/* Walks over count strings; 0: they are not all there. */
static size_t skip_strings(const char *data, size_t at, size_t length, uint64_t count)
{
    for (; count > 0; count--) {
        if (length - at < 8)
            return 0;
        uint64_t bytes = number_at(data + at);
        at += 8;
        if (length - at < bytes)
            return 0;
        at += bytes;
    }
    return at;
}

/* The size of the request at data, 0 where it is not whole; *count gets the keys of its list. */
static size_t request_size(const char *data, size_t length, uint64_t *count)
{
    size_t at = 1;
    *count = 0;
    for (const char *field = body_of((uint8_t)data[0]); field && *field; field++) {
        size_t fixed = *field == 'u' ? 4 : *field == 'i' || *field == 'K' || *field == 'P' ? 8 : 0;
        if (length - at < fixed)
            return 0;
        if (*field == 'K' || *field == 'P')
            *count = number_at(data + at);
        at += fixed;
        uint64_t strings = fixed == 0 ? 1 : *field == 'K' ? *count : *field == 'P' ? 2 * *count : 0;
        if (!(at = skip_strings(data, at, length, strings)))
            return 0;
    }
    return at;
}

static void put(struct bare *bare, const void *data, size_t length)
{
    if (OUTPUT - bare->length < length)
        abort();
    memcpy(bare->output + bare->length, data, length);
    bare->length += length;
}

static void put_number(struct bare *bare, uint64_t number)
{
    number = htole64(number);
    put(bare, &number, sizeof number);
}

static void put_values(struct bare *bare, uint64_t count)
{
    static const char value[4096];
    for (; count > 0; count--) {
        put_number(bare, bare->value);
        put(bare, value, bare->value);
    }
}

static void answer(struct bare *bare, const char *request, uint64_t count)
{
    static const char zero;
    switch ((enum tcpstore_query)request[0]) {
    case TCPSTORE_PING:
        put(bare, request + 1, 4);
        break;
    case TCPSTORE_CHECK:
    case TCPSTORE_WAIT:
    case TCPSTORE_BARRIER:
        put(bare, &zero, sizeof zero);
        break;
    case TCPSTORE_ADD:
    case TCPSTORE_DELETE_KEY:
    case TCPSTORE_GETNUMKEYS:
    case TCPSTORE_QUEUE_LEN:
        put_number(bare, 1);
        break;
    case TCPSTORE_QUEUE_POP:
        put_number(bare, 1);
        put_values(bare, 1);
        break;
    case TCPSTORE_GET:
    case TCPSTORE_COMPARE_SET:
        put_values(bare, 1);
        break;
    case TCPSTORE_MULTI_GET:
        put_values(bare, count);
        break;
    default: /* SET and its like have no answer */
        break;
    }
}

static void peer_leave(struct peer *peer, int fd)
{
    free(peer->input);
    *peer = (struct peer){0};
    close(fd);
}

static void peer_serve(struct bare *bare, int fd)
{
    struct peer *peer = &bare->peers[fd];
    ssize_t got = recv(fd, peer->input + peer->length, INPUT - peer->length, MSG_DONTWAIT);
    if (got <= 0) {
        peer_leave(peer, fd);
        return;
    }
    peer->length += (size_t)got;
    bare->length = 0;
    size_t at = 0, size;
    uint64_t count;
    while (at < peer->length && (size = request_size(peer->input + at, peer->length - at, &count)) > 0) {
        answer(bare, peer->input + at, count);
        at += size;
    }
    memmove(peer->input, peer->input + at, peer->length - at);
    peer->length -= at;
    if (bare->length && send(fd, bare->output, bare->length, MSG_NOSIGNAL) != (ssize_t)bare->length)
        peer_leave(peer, fd);
}

static void peer_accept(struct bare *bare)
{
    int fd = accept4(bare->listener, NULL, NULL, SOCK_CLOEXEC), yes = 1;
    if (fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= PEERS || !(bare->peers[fd].input = malloc(INPUT)) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) ||
        epoll_ctl(bare->epoll, EPOLL_CTL_ADD, fd, &event))
        peer_leave(&bare->peers[fd < PEERS ? fd : 0], fd);
}

static int listen_anywhere(struct bare *bare)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    struct epoll_event peers = {.events = EPOLLIN}, input = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    bare->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bare->epoll = epoll_create1(EPOLL_CLOEXEC);
    peers.data.fd = bare->listener;
    if (bare->listener < 0 || bare->epoll < 0 ||
        bind(bare->listener, (struct sockaddr *)&name, sizeof name) || listen(bare->listener, SOMAXCONN) ||
        getsockname(bare->listener, (struct sockaddr *)&name, &length) ||
        epoll_ctl(bare->epoll, EPOLL_CTL_ADD, bare->listener, &peers) ||
        epoll_ctl(bare->epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input))
        return -1;
    return ntohs(name.sin_port);
}

int main(int argc, char **argv)
{
    static struct bare bare;
    bare.value = argc > 1 ? strtoul(argv[1], NULL, 10) : 16;
    int port = bare.value <= 4096 ? listen_anywhere(&bare) : -1;
    if (port < 0) {
        perror("store_bare");
        return 1;
    }
    printf("%d\n", port);
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(bare.epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == STDIN_FILENO)
                return 0;
            if (events[i].data.fd == bare.listener)
                peer_accept(&bare);
            else
                peer_serve(&bare, events[i].data.fd);
        }
    }
}
