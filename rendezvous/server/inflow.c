/* inflow.c - see server_internal.h. */
#include "rendezvous/server/server_internal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

enum {
    ROWS_LIMIT = 65536, /* connections with higher descriptors are not watched, as in admission.c */
    FIRST_ROWS = 64,
    WAITS = 2,
    EVENTS_A_CALL = 256,
    /* Unread bytes that count as libzmq's already. Thousands of greetings wait while libzmq decrypts; to ask
     * for them again and again took more than half of the server's processor time. */
    UNREAD_LITTLE = 1024,
};
/* At the rate of a loopback connection these are some megabytes. */
#define LOOK_NS      (6 * NS_PER_MS)
#define LOOK_SOON_NS (1 * NS_PER_MS) /* while a tenth of the limit is held */

int inflow_init(struct inflow *inflow, int slots, struct muster_error *err)
{
    *inflow = (struct inflow){.epoll = epoll_create1(EPOLL_CLOEXEC),
                              .limit = INFLOW_ALL + (size_t)slots * INFLOW_ALL_PER_SLOT,
                              .look_at = INSTANT_NEVER};
    return inflow->epoll < 0 ? error_errno(err, "epoll for the connections of the rendezvous port") : 0;
}

void inflow_close(struct inflow *inflow)
{
    if (inflow->limit && inflow->epoll >= 0)
        (void)close(inflow->epoll); /* an epoll */
    mem_free(inflow->rows);
    *inflow = (struct inflow){.epoll = -1, .look_at = INSTANT_NEVER};
}

static struct inflow_row *row_of(struct inflow *inflow, int fd)
{
    return fd >= 0 && (size_t)fd < inflow->count && inflow->rows[fd].open ? &inflow->rows[fd] : NULL;
}

static uint64_t held_by(const struct inflow_row *row)
{
    return row->seen - row->base;
}

/* Asks for reports of the connection's new bytes. The kernel forgets a closed descriptor. If the number is
 * another file's by now, that file is no socket, or its own acceptance is reported. */
static int watch_bytes(const struct inflow *inflow, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    if (epoll_ctl(inflow->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return errno == ENOENT ? epoll_ctl(inflow->epoll, EPOLL_CTL_ADD, fd, &event) : -1;
}

static void inflow_forget(struct inflow *inflow, int fd)
{
    struct inflow_row *row = &inflow->rows[fd];
    inflow->held -= held_by(row);
    inflow->busy -= row->busy;
    *row = (struct inflow_row){0};
}

void inflow_ended(struct inflow *inflow, int fd)
{
    if (row_of(inflow, fd))
        inflow_forget(inflow, fd);
}

void inflow_accepted(struct inflow *inflow, int fd)
{
    if (fd < 0 || fd >= ROWS_LIMIT || inflow->epoll < 0)
        return;
    inflow_ended(inflow, fd); /* its end was not reported */
    if ((size_t)fd >= inflow->count) {
        size_t count = inflow->count ? inflow->count : FIRST_ROWS;
        while (count <= (size_t)fd)
            count *= 2;
        struct inflow_row *rows = mem_realloc(inflow->rows, count, sizeof *rows);
        if (!rows)
            return; /* not watched */
        memset(rows + inflow->count, 0, (count - inflow->count) * sizeof *rows);
        inflow->rows = rows;
        inflow->count = count;
    }
    inflow->rows[fd].open = watch_bytes(inflow, fd) == 0; /* else it has gone already */
}

void inflow_delivered(struct inflow *inflow, int fd)
{
    struct inflow_row *row = row_of(inflow, fd);
    if (!row)
        return;
    row->delivered = true; /* also the bytes that the next look finds */
    inflow->held -= held_by(row);
    row->base = row->seen;
}

void inflow_note(struct inflow *inflow, struct inflow_row *row, uint64_t received, uint64_t unread)
{
    const uint64_t taken = received > unread ? received - unread : 0;
    inflow->held -= held_by(row);
    row->seen = taken > row->seen ? taken : row->seen;
    if (row->delivered) /* messages are in order: all bytes before a delivered message are delivered */
        row->base = row->seen;
    row->waits = row->delivered || !held_by(row) ? 0 : row->waits < WAITS ? row->waits + 1 : WAITS;
    row->delivered = false;
    inflow->held += held_by(row);
}

/* Whether libzmq may hold more of it at the next look, also if nothing new arrives. */
static bool look_at(struct inflow *inflow, int fd)
{
    struct inflow_row *row = &inflow->rows[fd];
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int unread = 0;
    const uint64_t before = row->seen;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 || ioctl(fd, SIOCINQ, &unread) < 0) {
        inflow_forget(inflow, fd); /* it has gone, and its number is another file's */
        return false;
    }
    const bool much = unread > UNREAD_LITTLE;
    inflow_note(inflow, row, info.tcpi_bytes_received, much ? (uint64_t)unread : 0);
    return row->seen != before || much;
}

static void take_events(struct inflow *inflow)
{
    struct epoll_event events[EVENTS_A_CALL];
    int count;
    do {
        count = epoll_wait(inflow->epoll, events, EVENTS_A_CALL, 0);
        for (int i = 0; i < count; i++) {
            struct inflow_row *row = row_of(inflow, events[i].data.fd);
            if (row && !row->busy) {
                row->busy = true;
                inflow->busy++;
            }
        }
    } while (count == EVENTS_A_CALL);
}

void inflow_look(struct inflow *inflow, struct instant now)
{
    take_events(inflow);
    unsigned left = inflow->busy;
    for (size_t fd = 0; left > 0 && fd < inflow->count; fd++) {
        struct inflow_row *row = &inflow->rows[fd];
        if (!row->busy)
            continue;
        left--;
        if (look_at(inflow, (int)fd) || !row->open)
            continue;
        row->busy = false;
        inflow->busy--;
    }
    inflow->look_at = !inflow->busy                       ? INSTANT_NEVER
                      : inflow->held > inflow->limit / 10 ? instant_add(now, LOOK_SOON_NS)
                                                          : instant_add(now, LOOK_NS);
}

int inflow_excess(struct inflow *inflow)
{
    const struct inflow_row *largest = NULL;
    if (inflow->held <= INFLOW_EACH)
        return -1;
    for (size_t fd = 0; fd < inflow->count; fd++) {
        const struct inflow_row *row = &inflow->rows[fd];
        if (row->open && row->waits == WAITS && (!largest || held_by(row) > held_by(largest)))
            largest = row;
    }
    if (!largest || (held_by(largest) <= INFLOW_EACH && inflow->held <= inflow->limit))
        return -1;
    const int fd = (int)(largest - inflow->rows);
    inflow_forget(inflow, fd);
    return fd;
}
