/* fake_zmq.c - see fake_zmq.h. */
#include "tests/support/libraries/fake_zmq.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/zmq/zmq_calls.h"

enum { GONE_LIMIT = 8, NAME_SIZE = 16 };

struct frame {
    struct frame *next;
    bool more;
    int fd; /* descriptor of the connection it came on */
    size_t size;
    unsigned char data[];
};

/* A queue of frames, and a descriptor that is readable while there are any. */
struct fake_socket {
    struct frame *first, **last;
    int ready_fd;
    int listener; /* that was handed over; 0: none */
};

static struct {
    pthread_mutex_t lock;
    struct fake_socket main, monitor, silent; /* main: the ROUTER or DEALER */
    char gone[GONE_LIMIT][NAME_SIZE];
    int gone_count, sent;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void put(struct fake_socket *socket, const void *data, size_t size, int fd, bool more)
{
    struct frame *frame = calloc(1, sizeof *frame + size);
    if (!frame)
        abort();
    frame->more = more;
    frame->fd = fd;
    frame->size = size;
    memcpy(frame->data, data, size);
    *socket->last = frame;
    socket->last = &frame->next;
    (void)eventfd_write(socket->ready_fd, 1);
}

static struct frame *take(struct fake_socket *socket)
{
    struct frame *frame = socket->first;
    eventfd_t count;
    if (frame) {
        (void)eventfd_read(socket->ready_fd, &count); /* a semaphore: one for each frame */
        socket->first = frame->next;
        if (!socket->first)
            socket->last = &socket->first;
    }
    return frame;
}

/* --- libzmq's functions --- */

static void *fake_ctx_new(void)
{
    return &fake;
}

static int fake_ctx_term(void *context)
{
    (void)context;
    return 0;
}

static void *fake_socket(void *context, int type)
{
    (void)context;
    struct fake_socket *socket = type == ZMQ_ROUTER || type == ZMQ_DEALER ? &fake.main : &fake.silent;
    socket = type == ZMQ_PAIR ? &fake.monitor : socket;
    socket->last = &socket->first;
    socket->listener = 0;
    socket->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    return socket->ready_fd < 0 ? NULL : socket;
}

static int fake_close(void *s)
{
    struct fake_socket *socket = s;
    struct frame *frame;
    while ((frame = take(socket)))
        free(frame);
    (void)close(socket->ready_fd);
    if (socket->listener)
        (void)close(socket->listener);
    return 0;
}

static int fake_setsockopt(void *s, int option, const void *value, size_t size)
{
    if (option == ZMQ_USE_FD && size == sizeof(int))
        memcpy(&((struct fake_socket *)s)->listener, value, size);
    return 0;
}

static int fake_getsockopt(void *s, int option, void *value, size_t *size)
{
    const struct fake_socket *socket = s;
    if (*size != sizeof(int) || (option != ZMQ_FD && option != ZMQ_EVENTS)) {
        errno = EINVAL;
        return -1;
    }
    pthread_mutex_lock(&fake.lock);
    int answer = option == ZMQ_FD ? socket->ready_fd : socket->first ? ZMQ_POLLIN : 0;
    pthread_mutex_unlock(&fake.lock);
    memcpy(value, &answer, sizeof answer);
    return 0;
}

static int fake_place(void *s, const char *address) /* bind, connect and disconnect */
{
    (void)s, (void)address;
    return 0;
}

static bool is_gone(const void *id, size_t size)
{
    for (int i = 0; i < fake.gone_count; i++)
        if (strlen(fake.gone[i]) == size && !memcmp(fake.gone[i], id, size))
            return true;
    return false;
}

static int fake_send(void *s, const void *data, size_t size, int flags)
{
    (void)s;
    pthread_mutex_lock(&fake.lock);
    bool routes = flags & ZMQ_SNDMORE, failed = routes && is_gone(data, size);
    fake.sent += !routes;
    pthread_mutex_unlock(&fake.lock);
    if (failed)
        errno = EHOSTUNREACH;
    return failed ? -1 : (int)size;
}

/* The frame of a message; NULL: it is empty. */
static struct frame **frame_of(const zmq_msg_t *message)
{
    return (struct frame **)(void *)message;
}

static int fake_msg_init(zmq_msg_t *message)
{
    *frame_of(message) = NULL;
    return 0;
}

static int fake_msg_close(zmq_msg_t *message)
{
    free(*frame_of(message));
    *frame_of(message) = NULL;
    return 0;
}

static int fake_msg_recv(zmq_msg_t *message, void *s, int flags)
{
    (void)flags;
    pthread_mutex_lock(&fake.lock);
    struct frame *frame = take(s);
    pthread_mutex_unlock(&fake.lock);
    if (!frame) {
        errno = EAGAIN;
        return -1;
    }
    (void)fake_msg_close(message);
    *frame_of(message) = frame;
    return (int)frame->size;
}

static int fake_msg_more(const zmq_msg_t *message)
{
    const struct frame *frame = *frame_of(message);
    return frame && frame->more;
}

static void *fake_msg_data(zmq_msg_t *message)
{
    struct frame *frame = *frame_of(message);
    return frame ? frame->data : NULL;
}

static size_t fake_msg_size(const zmq_msg_t *message)
{
    const struct frame *frame = *frame_of(message);
    return frame ? frame->size : 0;
}

static int fake_msg_get(const zmq_msg_t *message, int property)
{
    const struct frame *frame = *frame_of(message);
    return frame && property == ZMQ_SRCFD ? frame->fd : -1;
}

static int fake_socket_monitor(void *s, const char *address, int events)
{
    (void)s, (void)address, (void)events;
    return 0;
}

static int fake_has(const char *capability)
{
    (void)capability;
    return 0;
}

static const char *fake_strerror(int number)
{
    return strerror(number);
}

/* --- the test's side --- */

void fake_zmq_install(void)
{
    zmq_calls = (struct zmq_calls){.ctx_new = fake_ctx_new,
                                   .ctx_term = fake_ctx_term,
                                   .socket = fake_socket,
                                   .close = fake_close,
                                   .setsockopt = fake_setsockopt,
                                   .getsockopt = fake_getsockopt,
                                   .bind = fake_place,
                                   .disconnect = fake_place,
                                   .connect = fake_place,
                                   .send = fake_send,
                                   .msg_init = fake_msg_init,
                                   .msg_recv = fake_msg_recv,
                                   .msg_more = fake_msg_more,
                                   .msg_data = fake_msg_data,
                                   .msg_size = fake_msg_size,
                                   .msg_get = fake_msg_get,
                                   .msg_close = fake_msg_close,
                                   .socket_monitor = fake_socket_monitor,
                                   .has = fake_has,
                                   .strerror = fake_strerror};
    fake.gone_count = fake.sent = 0;
}

void fake_zmq_hold(void)
{
    pthread_mutex_lock(&fake.lock);
}

void fake_zmq_release(void)
{
    pthread_mutex_unlock(&fake.lock);
}

void fake_zmq_arrives(const char *peer, int fd, const void *data, size_t size)
{
    if (peer)
        put(&fake.main, peer, strlen(peer), fd, true);
    put(&fake.main, data, size, fd, false);
}

void fake_zmq_tells(int event, int fd)
{
    const uint16_t number = (uint16_t)event;
    const int32_t value = fd;
    unsigned char detail[sizeof number + sizeof value];
    memcpy(detail, &number, sizeof number);
    memcpy(detail + sizeof number, &value, sizeof value);
    put(&fake.monitor, detail, sizeof detail, -1, true);
    put(&fake.monitor, "", 0, -1, false);
}

void fake_zmq_cuts(const char *peer)
{
    if (fake.gone_count == GONE_LIMIT || strlen(peer) >= NAME_SIZE)
        abort();
    (void)strcpy(fake.gone[fake.gone_count++], peer);
}

int fake_zmq_sent(void)
{
    pthread_mutex_lock(&fake.lock);
    int sent = fake.sent;
    pthread_mutex_unlock(&fake.lock);
    return sent;
}
