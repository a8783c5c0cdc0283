/* rendezvous_admission_test.c - which connections a full server ends: real sockets, with the events that
 * libzmq would send. */
#include "rendezvous/server/server_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/support/cmocka_all.h"

enum { MOST = 160, DESCRIPTORS = 256, SLOTS = 2, FULL = DESCRIPTORS / 2 };

struct crowd {
    struct admission admission;
    int listener, ours[MOST], theirs[MOST], count;
};

static const struct instant now = {NS_PER_S};

static int set_up(void **state)
{
    static struct crowd crowd;
    crowd = (struct crowd){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(crowd.listener, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(crowd.listener, MOST), 0);
    admission_init(&crowd.admission, NULL, SLOTS, SLOTS, DESCRIPTORS, NULL);
    *state = &crowd;
    return 0;
}

static int tear_down(void **state)
{
    struct crowd *crowd = *state;
    for (int i = 0; i < crowd->count; i++) {
        close(crowd->ours[i]);
        close(crowd->theirs[i]);
    }
    close(crowd->listener);
    admission_close(&crowd->admission);
    return 0;
}

static void come(struct crowd *crowd)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int i = crowd->count++;
    crowd->theirs[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getsockname(crowd->listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(crowd->theirs[i], (struct sockaddr *)&address, sizeof address), 0);
    crowd->ours[i] = accept(crowd->listener, NULL, NULL);
    assert_true(crowd->ours[i] >= 0);
    admission_watch(&crowd->admission, ZMQ_EVENT_ACCEPTED, crowd->ours[i], now);
}

static bool is_ended(const struct crowd *crowd, int i)
{
    struct pollfd peer = {crowd->theirs[i], POLLRDHUP, 0};
    return poll(&peer, 1, 0) == 1 && (peer.revents & POLLRDHUP);
}

static void the_oldest_silent_ones_make_room(void **state)
{
    struct crowd *crowd = *state;
    for (int i = 0; i < FULL; i++)
        come(crowd);
    admission_note_active(&crowd->admission, crowd->ours[0]);
    admission_note_active(&crowd->admission, crowd->ours[2]);
    for (int i = 0; i < FULL; i++)
        assert_false(is_ended(crowd, i));
    for (int i = 0; i < 3; i++)
        come(crowd);
    for (int i = 0; i < crowd->count; i++)
        assert_int_equal(is_ended(crowd, i), i == 1 || i == 3 || i == 4);
    assert_int_equal(crowd->admission.evicted, 3);
    for (int i = 3; i < 5; i++)
        admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[i], now);
    assert_int_equal(crowd->admission.evicted, 1);
    assert_int_equal(crowd->admission.open, FULL + 1);
    admission_note_active(&crowd->admission, crowd->ours[1]); /* a last message, after its end */
    come(crowd);
    assert_true(is_ended(crowd, 5));
}

/* Of libzmq's own greeting there is no timer. */
static void a_connection_that_does_not_register_is_ended(void **state)
{
    struct crowd *crowd = *state;
    const int64_t patience_ns = zmq_socket_greeting_limit_ms(SLOTS) * NS_PER_MS;
    struct instant late = instant_add(now, patience_ns);
    for (int i = 0; i < 3; i++)
        come(crowd);
    admission_note_active(&crowd->admission, crowd->ours[1]);
    assert_int_equal(admission_deadline(&crowd->admission).ns, late.ns);
    admission_tick(&crowd->admission, instant_add(late, -1));
    for (int i = 0; i < 3; i++)
        assert_false(is_ended(crowd, i));
    admission_tick(&crowd->admission, late);
    for (int i = 0; i < 3; i++)
        assert_int_equal(is_ended(crowd, i), i != 1);
    assert_int_equal(admission_deadline(&crowd->admission).ns, INSTANT_NEVER.ns);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[0], late);
    assert_int_equal(crowd->admission.rejections.reasons[REJECTION_SILENT].total, 1);
    assert_int_equal(crowd->admission.rejections.reasons[REJECTION_EVICTED].total, 0);
    assert_int_equal(crowd->admission.open, 2);
}

/* As a search for the server does, or a probe. */
static void look_at(struct crowd *crowd, struct instant end)
{
    come(crowd);
    admission_watch(&crowd->admission, ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, EPIPE, end);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[crowd->count - 1], end);
}

static void some_may_look_whether_it_listens(void **state)
{
    struct crowd *crowd = *state;
    const uint64_t *silent = &crowd->admission.rejections.reasons[REJECTION_SILENT].total;
    look_at(crowd, instant_add(now, NS_PER_S));
    assert_int_equal(*silent, 1);
    for (int i = 0; i < 4 * (SLOTS + 1); i++)
        look_at(crowd, instant_add(now, NS_PER_S - 1));
    assert_int_equal(*silent, 1);
    look_at(crowd, now);
    assert_int_equal(*silent, 2);
    assert_int_equal(crowd->admission.open, 0);
}

/* Whether a peer that ends its connection without a reason is taken for a program of another protocol. */
static void one_that_has_greeted_is_no_foreign_program(void **state)
{
    struct crowd *crowd = *state;
    const uint64_t *foreign = &crowd->admission.rejections.reasons[REJECTION_PROTOCOL].total;
    for (int i = 0; i < 6; i++)
        come(crowd);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[0], now);
    assert_int_equal(*foreign, 1);
    /* it is killed before it sends a message, or before its message is read */
    admission_watch(&crowd->admission, ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0, now);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[1], now);
    admission_note_active(&crowd->admission, crowd->ours[1]);
    assert_int_equal(*foreign, 1);
    /* its message is read before the report of its greeting */
    admission_note_active(&crowd->admission, crowd->ours[2]);
    admission_watch(&crowd->admission, ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0, now);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[3], now);
    assert_int_equal(*foreign, 2);
    /* it has greeted, and is closed here: the next one is another */
    admission_watch(&crowd->admission, ZMQ_EVENT_HANDSHAKE_SUCCEEDED, 0, now);
    admission_tick(&crowd->admission, instant_add(now, 3600 * NS_PER_S));
    for (int i = 4; i < 6; i++)
        admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[i], now);
    come(crowd);
    admission_watch(&crowd->admission, ZMQ_EVENT_DISCONNECTED, crowd->ours[6], now);
    assert_int_equal(*foreign, 3);
}

static void a_greeting_gets_another_turn(void **state)
{
    struct crowd *crowd = *state;
    for (int i = 0; i < FULL; i++)
        come(crowd);
    assert_int_equal(write(crowd->theirs[0], "\xff", 1), 1);
    assert_int_equal(write(crowd->theirs[2], "\xff", 1), 1);
    for (int i = 0; i < 2; i++)
        come(crowd);
    for (int i = 0; i < crowd->count; i++)
        assert_int_equal(is_ended(crowd, i), i == 1 || i == 3);
}

static void those_that_have_spoken_stay(void **state)
{
    struct crowd *crowd = *state;
    for (int i = 0; i < MOST; i++) {
        come(crowd);
        admission_note_active(&crowd->admission, crowd->ours[i]);
    }
    for (int i = 0; i < MOST; i++)
        assert_false(is_ended(crowd, i));
    assert_int_equal(crowd->admission.evicted, 0);
}

/* libzmq has closed it and its number is another connection's, whose event is still to come. */
static void a_number_that_went_to_another_is_left_alone(void **state)
{
    struct crowd *crowd = *state;
    for (int i = 0; i < FULL; i++)
        come(crowd);
    int other[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    assert_int_equal(dup2(other[0], crowd->ours[0]), crowd->ours[0]);
    come(crowd);
    struct pollfd peer = {other[1], POLLRDHUP, 0};
    assert_int_equal(poll(&peer, 1, 0), 0);
    close(other[0]);
    close(other[1]);
}

static void log_count(void *context, enum log_level level, const char *line)
{
    (void)level;
    assert_non_null(strstr(line, "descriptors"));
    ++*(int *)context;
}

static void there_is_room_for_the_job(void **state)
{
    (void)state;
    static const struct {
        uint64_t descriptors;
        int nodes, slots, full_at, warnings;
    } table[] = {
        {1 << 20, 2, 2, 2 * (1024 + 4 * 2), 0}, /* enough for all that are let in, and not half a million */
        {20000, 4096, 4096, 10000, 0},
        {20000, 16384, 16384, 16448, 0},
        {20000, 16384, 32784, 19872, 0},   /* an elastic job's: not all its spares */
        {1 << 20, 16384, 32784, 61440, 0}, /* none with a descriptor that is not known */
        {1024, 16, 16, 512, 0},
        {4096, 3000, 3000, 3064, 0}, /* more than half, where the job needs it */
        {4096, 4000, 4000, 3968, 1},
        {64, 2, 2, 32, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct admission admission;
        int warnings = 0;
        const struct log_sink log = {log_count, &warnings, LOG_LEVEL_WARNING, NULL};
        admission_init(&admission, NULL, table[i].nodes, table[i].slots, table[i].descriptors, &log);
        assert_int_equal(admission.full_at, table[i].full_at);
        assert_true(admission.open_limit <= admission.full_at);
        assert_int_equal(warnings, table[i].warnings);
    }
}

/* --- what libzmq holds --- */

/* So many bytes more on the connection, of which the kernel has all passed on. */
static void sends(struct inflow *inflow, int fd, uint64_t bytes, bool delivered)
{
    struct inflow_row *row = &inflow->rows[fd];
    row->delivered = delivered;
    inflow_note(inflow, row, row->seen + bytes, 0);
}

static void a_message_without_an_end_is_noticed(void **state)
{
    (void)state;
    struct inflow_row rows[40] = {0};
    struct inflow inflow = {.epoll = -1, .limit = INFLOW_ALL, .rows = rows, .count = 40};
    for (int fd = 0; fd < 40; fd++)
        rows[fd].open = true;
    for (int i = 0; i < 100; i++) { /* whole messages, however many */
        sends(&inflow, 3, 10 * INFLOW_EACH, true);
        assert_int_equal(inflow_excess(&inflow), -1);
    }
    assert_int_equal(inflow.held, 0);
    sends(&inflow, 3, WIRE_FRAME_LIMIT, false); /* a large message that takes long */
    for (int i = 0; i < 100; i++)
        sends(&inflow, 3, 10, false);
    assert_int_equal(inflow_excess(&inflow), -1);
    sends(&inflow, 3, 10, true);
    sends(&inflow, 4, 2 * INFLOW_EACH, false); /* it may have ended */
    assert_int_equal(inflow_excess(&inflow), -1);
    sends(&inflow, 4, 0, true);
    sends(&inflow, 5, 2 * INFLOW_EACH, false);
    sends(&inflow, 5, 1, false);
    assert_int_equal(inflow_excess(&inflow), 5);
    assert_int_equal(inflow.held, 0);
    assert_int_equal(inflow_excess(&inflow), -1);
    rows[5].open = true;
    inflow_note(&inflow, &rows[5], 1000, 600); /* bytes that the kernel still has are not libzmq's */
    assert_int_equal(inflow.held, 400);
    inflow_ended(&inflow, 5);
    /* none exceeds a message, all together do */
    for (int i = 0; i < 3; i++)
        for (int fd = 10; fd < 40; fd++)
            sends(&inflow, fd, (uint64_t)(4000 + fd), false);
    assert_int_equal(inflow_excess(&inflow), 39); /* the largest first */
    assert_int_equal(inflow_excess(&inflow), 38);
    while (inflow_excess(&inflow) >= 0)
        ;
    assert_true(inflow.held <= inflow.limit);
    assert_true(rows[10].open);
}

static bool is_readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

/* Thousands of greetings wait in the kernel while libzmq decrypts: none is asked for twice. */
static void bytes_that_wait_are_not_asked_for_again(void **state)
{
    struct crowd *crowd = *state;
    struct inflow inflow;
    static const char bytes[8192];
    char taken[8192];
    assert_int_equal(inflow_init(&inflow, SLOTS, NULL), 0);
    come(crowd);
    const int theirs = crowd->theirs[0], ours = crowd->ours[0];
    inflow_accepted(&inflow, ours);
    assert_false(is_readable(inflow.epoll));
    for (int64_t sent = 500; sent <= 1000; sent += 500) {
        assert_int_equal(send(theirs, bytes, 500, 0), 500);
        assert_true(is_readable(inflow.epoll));
        inflow_look(&inflow, now);
        assert_int_equal(inflow.held, sent);
        assert_true(inflow.look_at.ns != INSTANT_NEVER.ns);
        inflow_look(&inflow, now);
        assert_true(inflow.look_at.ns == INSTANT_NEVER.ns); /* though nobody has read them */
        assert_false(is_readable(inflow.epoll));
    }
    inflow_delivered(&inflow, ours); /* without a look */
    assert_int_equal(inflow.held, 0);
    assert_int_equal(send(theirs, bytes, sizeof bytes, 0), sizeof bytes);
    inflow_look(&inflow, now);
    inflow_look(&inflow, now);
    assert_true(inflow.look_at.ns != INSTANT_NEVER.ns); /* many are, until they are read */
    assert_int_equal(inflow.held, 0);
    assert_int_equal(recv(ours, taken, sizeof taken, MSG_WAITALL), sizeof taken);
    for (int i = 0; i < 3; i++)
        inflow_look(&inflow, now);
    assert_int_equal(inflow.held, sizeof bytes); /* the last 1,000 wait, and count already */
    assert_true(inflow.look_at.ns == INSTANT_NEVER.ns);
    inflow_close(&inflow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_without_an_end_is_noticed),
        cmocka_unit_test_setup_teardown(bytes_that_wait_are_not_asked_for_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_silent_ones_make_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_that_does_not_register_is_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(some_may_look_whether_it_listens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_greeting_gets_another_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_has_greeted_is_no_foreign_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(those_that_have_spoken_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_number_that_went_to_another_is_left_alone, set_up, tear_down),
        cmocka_unit_test(there_is_room_for_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
