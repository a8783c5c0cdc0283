/* shard_test_ranks.h - a small sharded model on ranks that are threads, each with a world of its own. */
#ifndef MUSTER_TESTS_SHARD_TEST_RANKS_H
#define MUSTER_TESTS_SHARD_TEST_RANKS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/include/muster_shard.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/world/world_test_environment.h"

/* Asserts would jump out of a thread: a failed check prints and ends the rank. */
#define CHECK(model, what)                                                                                   \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, (model)->rank, #what);       \
            return -1;                                                                                       \
        }                                                                                                    \
    } while (0)
#define MUST(model, call)                                                                                    \
    do {                                                                                                     \
        struct muster_error must_err = {0}, *err = &must_err;                                                \
        if (call) {                                                                                          \
            fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__, __LINE__, (model)->rank, #call,            \
                    err->text);                                                                              \
            return -1;                                                                                       \
        }                                                                                                    \
    } while (0)
/* The call fails, and its error has this text in it. */
#define REFUSED(model, call, names)                                                                          \
    do {                                                                                                     \
        struct muster_error must_err = {0}, *err = &must_err;                                                \
        if (!(call)) {                                                                                       \
            fprintf(stderr, "%s:%d: rank %d: %s did not fail\n", __FILE__, __LINE__, (model)->rank, #call);  \
            return -1;                                                                                       \
        }                                                                                                    \
        if (!strstr(err->text, names)) {                                                                     \
            fprintf(stderr, "%s:%d: rank %d: '%s' does not name '%s'\n", __FILE__, __LINE__, (model)->rank,  \
                    err->text, names);                                                                       \
            return -1;                                                                                       \
        }                                                                                                    \
    } while (0)

enum { TEST_GROUPS = 4, TEST_PARAMS = 7 };
/* h.0 to h.2 are alike; the last group is frozen. One is larger than what passes through the eager path. */
static const struct {
    int group;
    const char *name;
    int64_t elements;
    int parameter_class;
} test_params[TEST_PARAMS] = {
    {0, "h.0.weight", 30011, 0}, {0, "h.0.bias", 7, 1}, {1, "h.1.weight", 30011, 0}, {1, "h.1.bias", 7, 1},
    {2, "h.2.weight", 30011, 0}, {2, "h.2.bias", 7, 1}, {3, "fixed.weight", 129, 0}};
static const char *const test_groups[TEST_GROUPS] = {"h.0", "h.1", "h.2", "fixed"};

struct test_model {
    int rank, size;
    bool apart; /* each rank on a node of its own, as far as it knows: they speak TCP */
    int node;   /* not 0: so many ranks are on each node, as far as they know */
    struct muster_world *world;
    struct muster_shard *shard;
};

static inline void test_model_close(struct test_model *m)
{
    muster_shard_destroy(m->shard);
    muster_world_close(&m->world);
}

/* A launcher's variables where not all ranks are on one node. */
struct test_node {
    struct test_environment environment; /* first: it is the context of test_environment_get */
    char local_rank[16], local_size[16];
};

static inline const char *test_node_get(void *context, const char *name)
{
    const struct test_node *node = context;
    if (!strcmp(name, "LOCAL_WORLD_SIZE"))
        return node->local_size;
    if (!strcmp(name, "LOCAL_RANK"))
        return node->local_rank;
    return test_environment_get(context, name);
}

static inline int test_model_join(struct test_model *m, int port, int64_t timeout_ms)
{
    const int local = m->apart ? 1 : m->node;
    struct test_node e = {.environment = test_environment_of(m->rank, m->size, port, false, 0)};
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = timeout_ms,
                                                 .get_environment =
                                                     local ? test_node_get : test_environment_get,
                                                 .context = &e};
    (void)snprintf(e.local_rank, sizeof e.local_rank, "%d", local ? m->rank % local : 0);
    (void)snprintf(e.local_size, sizeof e.local_size, "%d", local);
    if (m->size > 1)
        MUST(m, !(m->world = muster_world_open(&options, err)));
    return 0;
}

static inline int test_model_register(struct test_model *m, const struct muster_shard_options *options)
{
    MUST(m, !(m->shard = muster_shard_create(m->world, options, err)));
    for (int i = 0, last = -1; i < TEST_PARAMS; i++) {
        int group = test_params[i].group;
        if (group != last)
            MUST(m, muster_shard_group(m->shard, test_groups[group], group == 3, err) != group);
        last = group;
        MUST(m, muster_shard_parameter(m->shard, test_params[i].name, test_params[i].elements,
                                       test_params[i].parameter_class, err) != i);
    }
    return 0;
}

static inline int test_model_open(struct test_model *m, int port, const struct muster_shard_options *options)
{
    if (test_model_join(m, port, 60000) || test_model_register(m, options))
        return -1;
    MUST(m, muster_shard_ready(m->shard, err));
    return 0;
}

#endif
