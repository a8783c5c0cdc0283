/* world_test_environment.h - a launcher's variables as an object, for ranks that do not share a process's
 * environment. */
#ifndef MUSTER_TESTS_WORLD_TEST_ENVIRONMENT_H
#define MUSTER_TESTS_WORLD_TEST_ENVIRONMENT_H

#include <stdio.h>
#include <string.h>

#include "runtime/include/muster.h"
#include "tests/support/free_port.h"

struct test_environment {
    char rank[16], size[16], port[16], agent[8], restarts[16];
};

static inline const char *test_environment_get(void *context, const char *name)
{
    const struct test_environment *e = context;
    const struct {
        const char *name, *value;
    } all[] = {{"RANK", e->rank},
               {"WORLD_SIZE", e->size},
               {"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", e->port},
               {"TORCHELASTIC_USE_AGENT_STORE", e->agent},
               {"TORCHELASTIC_RESTART_COUNT", e->restarts}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strcmp(name, all[i].name))
            return all[i].value;
    }
    return NULL;
}

static inline struct test_environment test_environment_of(int rank, int size, int port, bool agent,
                                                          int restarts)
{
    struct test_environment e;
    snprintf(e.rank, sizeof e.rank, "%d", rank);
    snprintf(e.size, sizeof e.size, "%d", size);
    snprintf(e.port, sizeof e.port, "%d", port);
    snprintf(e.agent, sizeof e.agent, "%s", agent ? "True" : "False");
    snprintf(e.restarts, sizeof e.restarts, "%d", restarts);
    return e;
}

static inline struct muster_world *test_environment_open(struct test_environment *e, int64_t timeout_ms,
                                                         struct muster_error *err)
{
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = timeout_ms,
                                                 .get_environment = test_environment_get,
                                                 .context = e};
    return muster_world_open(&options, err);
}

#endif
