/* comm_tcp_memory.c - memory, links and descriptors of a comm over TCP. See comm_tcp_internal.h. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_tcp_internal.h"

static void add_link(struct tcp_comm *tcp, int rank)
{
    for (int i = 0; i < tcp->link_count; i++) {
        if (tcp->links[i] == rank)
            return;
    }
    if (rank != tcp->comm.rank)
        tcp->links[tcp->link_count++] = rank;
}

/* In an order in which not all ranks begin with the same one. */
static void list_links(struct tcp_comm *tcp)
{
    int size = tcp->comm.size;
    if (tcp->star && tcp->comm.rank > 0) {
        add_link(tcp, 0);
        return;
    }
    for (int places = 1; places < size; places = tcp_is_sparse(tcp) ? 2 * places : places + 1) {
        add_link(tcp, tcp_rank_after(tcp, places));
        if (tcp_is_sparse(tcp))
            add_link(tcp, tcp_rank_after(tcp, -places));
    }
}

static int open_watch(struct tcp_comm *tcp, struct muster_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = UINT64_MAX}};
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->watch = epoll_create1(EPOLL_CLOEXEC);
    if (tcp->wake < 0 || tcp->watch < 0 || epoll_ctl(tcp->watch, EPOLL_CTL_ADD, tcp->wake, &event))
        return error_errno(err, "descriptors to wait with");
    return 0;
}

int tcp_allocate(struct tcp_comm *tcp, bool operations, struct muster_error *err)
{
    size_t size = (size_t)tcp->comm.size;
    int64_t least = 2 * 2 * 8 * ((int64_t)tcp->comm.size + 1); /* doubling with two elements a block */
    int64_t chunk = TCP_SCRATCH_BYTES / tcp->comm.size / 4096 * 4096;
    tcp->wake = tcp->watch = tcp->listener = -1;
    tcp->chunk_bytes = chunk < TCP_CHUNK_BYTES ? chunk : TCP_CHUNK_BYTES;
    (void)pthread_mutex_init(&tcp->lock, NULL); /* cannot fail with default attributes on Linux */
    tcp->peers = mem_calloc(size, sizeof *tcp->peers);
    tcp->links = mem_calloc(size, sizeof *tcp->links);
    tcp->polls = mem_calloc(1 + 2 * size, sizeof *tcp->polls);
    tcp->polled = mem_calloc(size, sizeof *tcp->polled);
    tcp->sources = mem_calloc(size, sizeof *tcp->sources);
    tcp->scratch_bytes = least > TCP_SCRATCH_BYTES ? least : TCP_SCRATCH_BYTES;
    tcp->scratch = operations ? mem_calloc(1, (size_t)tcp->scratch_bytes) : NULL;
    for (size_t i = 0; tcp->peers && i < size; i++)
        tcp->peers[i].fds[TCP_DATA] = tcp->peers[i].fds[TCP_NEWS] = -1;
    if (!tcp->peers || !tcp->links || !tcp->polls || !tcp->polled || !tcp->sources ||
        (operations && !tcp->scratch))
        return error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", tcp->comm.name);
    list_links(tcp);
    return operations ? open_watch(tcp, err) : 0;
}

void tcp_free(struct tcp_comm *tcp)
{
    for (int rank = 0; tcp->peers && rank < tcp->comm.size; rank++) {
        for (int role = 0; role < TCP_ROLE_COUNT; role++) {
            if (tcp->peers[rank].fds[role] >= 0)
                (void)close(tcp->peers[rank].fds[role]); /* no call is in progress */
        }
    }
    tcp_forget_callers(tcp);
    const int fds[] = {tcp->wake, tcp->watch, tcp->listener};
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]); /* no thread waits */
    }
    mem_free(tcp->peers);
    mem_free(tcp->links);
    mem_free(tcp->polls);
    mem_free(tcp->polled);
    mem_free(tcp->sources);
    mem_free(tcp->scratch);
    mem_free(tcp->listings);
    (void)pthread_mutex_destroy(&tcp->lock);
}
