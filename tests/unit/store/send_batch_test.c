/* send_batch_test.c - many sends in one call, and the same one after the other. */
#include "rendezvous/net/send_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

enum { PAIRS = 5, MUCH = 8 << 20 };

/* The one part of a job. */
#define PART(bytes, size) .parts = &(struct iovec){bytes, size}, .count = 1

struct pairs {
    int near[PAIRS], far[PAIRS];
};

static void open_pairs(struct pairs *p)
{
    for (int i = 0; i < PAIRS; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        p->near[i] = ends[0];
        p->far[i] = ends[1];
    }
}

static void close_pairs(const struct pairs *p)
{
    for (int i = 0; i < PAIRS; i++) {
        close(p->near[i]);
        if (p->far[i] >= 0)
            close(p->far[i]);
    }
}

static void expect(int fd, const char *text)
{
    char got[16];
    assert_int_equal(recv(fd, got, sizeof got, 0), strlen(text));
    assert_memory_equal(got, text, strlen(text));
}

/* A socket whose peer is gone, a full socket, a socket that takes a part, a descriptor that is no socket. */
static void every_outcome(struct send_batch *batch)
{
    struct pairs p;
    scope_free char *much = mem_calloc(1, MUCH);
    open_pairs(&p);
    close(p.far[1]);
    p.far[1] = -1;
    while (send(p.near[2], much, MUCH, MSG_DONTWAIT) > 0)
        ;
    struct send_job jobs[] = {
        {.fd = p.near[0], PART("one", 3)},
        {.fd = p.near[1], PART("two", 3)},
        {.fd = p.near[2], PART("three", 5)},
        {.fd = p.near[3], PART(much, MUCH)},
        {.fd = -1, PART("four", 4)},
        {.fd = p.near[4], .parts = (struct iovec[]){{"fi", 2}, {"", 0}, {"ve", 2}}, .count = 3},
    };
    send_batch_run(batch, jobs, sizeof jobs / sizeof *jobs);
    assert_int_equal(jobs[0].result, 3);
    assert_int_equal(jobs[1].result, -EPIPE);
    assert_int_equal(jobs[2].result, -EAGAIN);
    assert_in_range(jobs[3].result, 1, MUCH - 1);
    assert_int_equal(jobs[4].result, -EBADF);
    assert_int_equal(jobs[5].result, 4);
    expect(p.far[0], "one");
    expect(p.far[4], "five");
    close_pairs(&p);
}

static void one_after_the_other(void **state)
{
    (void)state;
    struct send_batch batch = {.refused = true};
    every_outcome(&batch);
    assert_int_equal(batch.context, 0);
    send_batch_free(&batch);
}

static void all_at_once(void **state)
{
    (void)state;
    struct send_batch batch = {0};
    for (int i = 0; i < 3; i++) /* its results are all taken: the next run finds none of them */
        every_outcome(&batch);
    if (batch.refused) {
        skip_because("io_setup is refused here");
    }
    assert_int_not_equal(batch.context, 0);
    send_batch_free(&batch);
    assert_int_equal(batch.context, 0);
    every_outcome(&batch); /* ready again */
    send_batch_free(&batch);
}

static void few_need_no_set_up(void **state)
{
    (void)state;
    struct send_batch batch = {0};
    struct send_job jobs[SEND_BATCH_WORTH - 1];
    const struct iovec one = {"one", 3};
    struct pairs p;
    open_pairs(&p);
    for (int i = 0; i < SEND_BATCH_WORTH - 1; i++)
        jobs[i] = (struct send_job){.fd = p.near[i], .parts = &one, .count = 1};
    for (size_t count = 0; count < SEND_BATCH_WORTH; count++) {
        send_batch_run(&batch, jobs, count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(jobs[i].result, 3);
            expect(p.far[i], "one");
        }
    }
    assert_int_equal(batch.context, 0);
    assert_false(batch.refused);
    close_pairs(&p);
    send_batch_free(&batch);
}

static void the_most_of_them(void **state)
{
    (void)state;
    struct send_batch batch = {0};
    struct send_job jobs[SEND_BATCH_MAX];
    const struct iovec one = {"x", 1};
    struct pairs p;
    char got[SEND_BATCH_MAX + 1];
    open_pairs(&p);
    for (int i = 0; i < SEND_BATCH_MAX; i++)
        jobs[i] = (struct send_job){.fd = p.near[i % PAIRS], .parts = &one, .count = 1};
    for (int turn = 0; turn < 10; turn++) {
        send_batch_run(&batch, jobs, SEND_BATCH_MAX);
        for (int i = 0; i < SEND_BATCH_MAX; i++)
            assert_int_equal(jobs[i].result, 1);
        for (int i = 0; i < PAIRS; i++)
            assert_int_equal(recv(p.far[i], got, sizeof got, 0), (SEND_BATCH_MAX - i + PAIRS - 1) / PAIRS);
    }
    close_pairs(&p);
    send_batch_free(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(few_need_no_set_up),
        cmocka_unit_test(the_most_of_them),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
