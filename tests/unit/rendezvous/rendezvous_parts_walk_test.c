/* rendezvous_parts_walk_test.c - the server's routes against a plain list of them; attempts to connect and
 * rejected connections on random events, one line a seed (walk.h). */
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "rendezvous/client/connection.h"
#include "rendezvous/security/rejection_log.h"
#include "rendezvous/server/server_internal.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 200, STEPS = 300, SLOTS = 40 };

struct known {
    uint64_t session; /* 0: none */
    unsigned char id[ROUTE_ID_LIMIT];
    size_t id_size;
    int fd;
};

static int find(const struct known *known, int slots, const unsigned char *id, size_t size)
{
    for (int i = 0; i < slots; i++)
        if (known[i].session && known[i].id_size == size && memcmp(known[i].id, id, size) == 0)
            return i;
    return -1;
}

static int find_fd(const struct known *known, int slots, int fd)
{
    for (int i = 0; i < slots; i++)
        if (known[i].session && fd >= 0 && known[i].fd == fd)
            return i;
    return -1;
}

static void routes_are_found_until_they_end(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct routes routes;
        struct muster_error err = {0};
        struct known known[SLOTS] = {0};
        int slots = 1 + (int)walk_below(&walk, SLOTS);
        uint64_t sessions = 0;
        assert_int_equal(routes_init(&routes, slots, &err), 0);
        for (int i = 0; i < STEPS; i++) {
            int slot = (int)walk_below(&walk, slots);
            unsigned char id[ROUTE_ID_LIMIT];
            size_t size = walk_one_in(&walk, 4) ? (size_t)walk_below(&walk, ROUTE_ID_LIMIT + 1) : 5;
            for (size_t k = 0; k < size; k++)
                id[k] = (unsigned char)(k < 2 ? walk_below(&walk, 8) : 0);
            int fd = walk_one_in(&walk, 5) ? -1 : 3 + (int)walk_below(&walk, 2 * SLOTS);
            if (walk_one_in(&walk, 3)) {
                uint64_t session = walk_one_in(&walk, 4) ? sessions : known[slot].session;
                routes_remove(&routes, slot, session);
                if (session == known[slot].session)
                    known[slot].session = 0;
            } else if (find(known, slots, id, size) < 0 && find_fd(known, slots, fd) < 0) {
                routes_set(&routes, slot, ++sessions, id, size, fd);
                known[slot] = (struct known){.session = sessions, .id_size = size, .fd = fd};
                memcpy(known[slot].id, id, size);
            }
            for (int k = 0; k < slots; k++) {
                assert_int_equal(routes.slots[k].session, known[k].session);
                if (!known[k].session)
                    continue;
                assert_int_equal(routes_find(&routes, known[k].id, known[k].id_size), k);
                assert_int_equal(routes_find_fd(&routes, known[k].fd), known[k].fd < 0 ? -1 : k);
                assert_false(routes.slots[k].broken);
            }
            assert_int_equal(routes_find(&routes, id, size), find(known, slots, id, size));
            assert_int_equal(routes_find_fd(&routes, fd), find_fd(known, slots, fd));
        }
        routes_free(&routes);
        routes_free(&routes);
    }
}

static int make_routes(void *context)
{
    struct routes routes;
    (void)context;
    if (routes_init(&routes, 10, NULL) < 0)
        return -1;
    routes_free(&routes);
    return 0;
}

static void routes_without_memory(void **state)
{
    (void)state;
    faults_sweep(make_routes, NULL);
}

static void one_connection(struct walk *walk)
{
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < STEPS; i++) {
        enum connection_event event = (enum connection_event)walk_below(walk, CONNECTION_EVENT_COUNT);
        now.ns += walk_one_in(walk, 4) ? walk_below(walk, 20 * NS_PER_S) : walk_below(walk, NS_PER_S / 2);
        const int64_t numbers[] = {connection_is_lost_by(&connection, event),
                                   connection_step(&connection, event, now),
                                   connection_is_judged(&connection),
                                   connection_is_mismatch(&connection),
                                   connection_is_hopeless(&connection),
                                   connection_retry(&connection).ns,
                                   connection.state};
        walk_saw(walk, numbers, sizeof numbers);
        walk_saw_text(walk, connection_words(&connection));
        if (walk_one_in(walk, 6))
            connection_retried(&connection);
        if (walk_one_in(walk, 40))
            connection = (struct connection){0};
    }
}

static void one_log(struct walk *walk)
{
    static const char *const addresses[] = {"", "10.0.0.1", "10.0.0.2", "fd00::1"};
    struct rejection_log rejections = {0};
    struct instant now = {NS_PER_S};
    char line[REJECTION_LINE_SIZE];
    for (int i = 0; i < STEPS; i++) {
        line[0] = '\0';
        struct instant due = rejection_log_deadline(&rejections);
        if (due.ns != INSTANT_NEVER.ns && due.ns > now.ns && walk_one_in(walk, 4))
            now.ns = due.ns - walk_below(walk, 2);
        else
            now.ns += walk_one_in(walk, 30) ? 2000 * NS_PER_S : walk_below(walk, 3 * NS_PER_S);
        walk_saw_number(walk, due.ns);
        if (!walk_one_in(walk, 3)) {
            const char *address = walk_pick(walk, addresses); /* arguments have no order */
            const int kinds = walk_one_in(walk, 3) ? REJECTION_COUNT : 2;
            const enum rejection rejection = (enum rejection)walk_below(walk, kinds);
            bool logged = rejection_log_note(&rejections, rejection, address, now, line);
            walk_saw_text(walk, logged ? line : NULL);
        }
        while (walk_one_in(walk, 2) && rejection_log_next(&rejections, now, line))
            walk_saw_text(walk, line);
        if (walk_one_in(walk, 20))
            walk_saw_text(walk, rejection_log_total(&rejections, line) ? line : NULL);
    }
}

static void connections_and_rejections(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        one_connection(&walk);
        one_log(&walk);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/connection_walks.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_found_until_they_end),
        cmocka_unit_test(routes_without_memory),
        cmocka_unit_test(connections_and_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
