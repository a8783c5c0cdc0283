/* listener_search.h: of several that look for each other at the same time exactly one listens in the end. */
#include "launcher/loop/listener_search.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/net/tcp_listen.h"
#include "tests/support/cmocka_all.h"

static const char *const places[] = {"127.0.0.2", "127.0.0.3"};

/* The search of a node at places[own], which has the other one as its rival. */
static struct listener_search *search_of(int own, uint16_t port)
{
    struct listener_search *s = mem_calloc(1, sizeof *s);
    assert_non_null(s);
    (void)snprintf(s->addresses[0], ADDRESS_TEXT, "%s", places[!own]);
    (void)snprintf(s->bind, sizeof s->bind, "%s", places[own]);
    s->count = 1;
    s->before = own;
    s->port = port;
    s->until = clock_now(NULL);
    s->claims = true;
    return s;
}

/* A port that no program of this machine has. */
static uint16_t free_port(void)
{
    struct muster_error err = {0};
    uint16_t port;
    scope_close int fd = tcp_listen(NULL, 0, &port, &err);
    assert_true(fd >= 0);
    return port;
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct listener_search *s = search_of(1, free_port()), *rival = search_of(0, s->port);
    listener_search_run(s);
    assert_int_equal(s->found, -1);
    assert_true(s->claim >= 0);
    listener_search_run(rival); /* goes before, and finds it all the same */
    assert_int_equal(rival->found, 0);
    assert_int_equal(rival->claim, -1);
    listener_search_destroy(rival);
    listener_search_destroy(s);
}

static void test_without_a_claim(void **state)
{
    (void)state;
    struct listener_search *s = search_of(1, free_port());
    s->claims = false;
    listener_search_run(s);
    assert_int_equal(s->found, -1);
    assert_int_equal(s->claim, -1);
    listener_search_destroy(s);
}

static void test_the_port_is_taken_here(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct listener_search *s = search_of(0, free_port());
    uint16_t port;
    scope_close int fd = tcp_listen(places[0], s->port, &port, &err);
    assert_true(fd >= 0);
    listener_search_run(s);
    assert_int_equal(s->found, -1);
    assert_int_equal(s->claim, -1);
    listener_search_destroy(s);
}

/* Listens until a search has found it, as a claim does that gives way. */
static void *give_way(void *context)
{
    int *fd = context;
    scope_close int peer = accept(*fd, NULL, NULL);
    guard_close(fd);
    return NULL;
}

/* On a busy machine the listener may outlive the second look: repeated. */
static void test_the_found_one_gives_way(void **state)
{
    (void)state;
    bool claimed = false;
    for (int round = 0; round < 200 && !claimed; round++) {
        struct muster_error err = {0};
        struct listener_search *s = search_of(round % 2, free_port());
        pthread_t thread;
        uint16_t port;
        int fd = tcp_listen(s->addresses[0], s->port, &port, &err);
        assert_true(fd >= 0);
        assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* accept waits */
        assert_int_equal(pthread_create(&thread, NULL, give_way, &fd), 0);
        listener_search_run(s);
        assert_int_equal(pthread_join(thread, NULL), 0);
        claimed = s->claim >= 0;
        assert_int_equal(s->found, claimed ? -1 : 0);
        listener_search_destroy(s);
    }
    assert_true(claimed);
}

struct racer {
    struct listener_search *search;
    pthread_barrier_t *begin;
    useconds_t later; /* random: the races differ */
};

static void *race(void *context)
{
    struct racer *r = context;
    (void)pthread_barrier_wait(r->begin);
    (void)usleep(r->later);
    listener_search_run(r->search);
    return NULL;
}

static void test_two_at_once(void **state)
{
    (void)state;
    const uint16_t port = free_port();
    for (int round = 0; round < 60; round++) {
        pthread_barrier_t begin;
        pthread_t threads[2];
        struct racer racers[2];
        assert_int_equal(pthread_barrier_init(&begin, NULL, 2), 0);
        for (int i = 0; i < 2; i++) {
            racers[i] =
                (struct racer){search_of(i, port), &begin, (useconds_t)(round % 20 * (i == round / 20 % 2))};
            assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        const bool first = racers[0].search->claim >= 0, second = racers[1].search->claim >= 0;
        assert_true(first != second);
        assert_int_equal(racers[first].search->found, 0); /* the other one knows where */
        for (int i = 0; i < 2; i++)
            listener_search_destroy(racers[i].search);
        assert_int_equal(pthread_barrier_destroy(&begin), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_without_a_claim),
        cmocka_unit_test(test_the_port_is_taken_here),
        cmocka_unit_test(test_the_found_one_gives_way),
        cmocka_unit_test(test_two_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
