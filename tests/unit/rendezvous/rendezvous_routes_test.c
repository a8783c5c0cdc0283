/* rendezvous_routes_test.c - the server's map of sessions against a plain list, over random changes. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/server_internal.h"
#include "tests/support/cmocka_all.h"

enum { SLOTS = 7, IDS = 12, FDS = 20, CHANGES = 20000 };

struct plain {
    uint64_t session; /* 0: no route */
    char id[8];
    int fd;
};

static void check(const struct routes *routes, const struct plain *plain)
{
    char id[8];
    for (int i = 0; i < IDS; i++) {
        int wanted = -1;
        (void)snprintf(id, sizeof id, "id-%d", i);
        for (int slot = 0; slot < SLOTS; slot++)
            if (plain[slot].session && !strcmp(plain[slot].id, id))
                wanted = slot;
        assert_int_equal(routes_find(routes, id, strlen(id)), wanted);
    }
    for (int fd = -1; fd < FDS; fd++) {
        int wanted = -1;
        for (int slot = 0; slot < SLOTS; slot++)
            if (plain[slot].session && plain[slot].fd == fd && fd >= 0)
                wanted = slot;
        assert_int_equal(routes_find_fd(routes, fd), wanted);
    }
}

/* Ids and descriptors are held by one route at a time, as libzmq and the kernel give them out. */
static bool is_held(const struct plain *plain, const char *id, int fd)
{
    for (int slot = 0; slot < SLOTS; slot++)
        if (plain[slot].session && (!strcmp(plain[slot].id, id) || (fd >= 0 && plain[slot].fd == fd)))
            return true;
    return false;
}

static void random_changes(void **state)
{
    (void)state;
    struct routes routes;
    struct muster_error err;
    struct plain plain[SLOTS] = {{0}};
    unsigned seed = 5;
    uint64_t sessions = 0;
    assert_int_equal(routes_init(&routes, SLOTS, &err), 0);
    for (int i = 0; i < CHANGES; i++) {
        int slot = rand_r(&seed) % SLOTS, fd = rand_r(&seed) % FDS - 1;
        char id[8];
        (void)snprintf(id, sizeof id, "id-%d", rand_r(&seed) % IDS);
        if (rand_r(&seed) % 3 == 0) {
            bool known = rand_r(&seed) % 4;
            routes_remove(&routes, slot, known ? plain[slot].session : 12345678);
            if (known)
                plain[slot].session = 0;
        } else if (!is_held(plain, id, fd)) {
            routes_set(&routes, slot, ++sessions, id, strlen(id), fd);
            plain[slot] = (struct plain){.session = sessions, .fd = fd};
            memcpy(plain[slot].id, id, sizeof id);
        }
        check(&routes, plain);
    }
    routes_free(&routes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
