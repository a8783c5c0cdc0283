/* launcher_identity_walk_test.c - a node's place from random environments and host names, next to the result
 * of each rule takes and does not; maps of streams and Slurm's lists from random characters. One line a seed
 * (walk.h). */
#include <stdio.h>
#include <string.h>

#include "launcher/config/config.h"
#include "launcher/config/node_identity.h"
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/slurm.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_environment.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 100, TURNS = 800 };

static void keep(const char *path, void (*one)(struct walk *walk))
{
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        for (int i = 0; i < TURNS; i++)
            one(&walk);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check(path, &text);
}

/* -- places -- */

static const char *const numbers[] = {
    "0",       "1",       "2",     "3",     "-1",    "0",  "1",    "2",    "999999",
    "1000000", "1000001", "65535", "65536", "23456", "5x", "4999", "5000", "9223372036854775807"};
static const char *const names[] = {"pt-master-0",
                                    "pt-worker-0",
                                    "pt-worker-1",
                                    "pt-worker-2.ns.svc",
                                    "pt-master-0.ns",
                                    "my.job-worker-1",
                                    "my-worker-1.ns-1",
                                    "job-2.svc",
                                    "job-0",
                                    "worker-1",
                                    "-worker-1",
                                    "pt-worker-",
                                    "pt-worker-99999999999999999999",
                                    "laptop",
                                    "localhost",
                                    "127.0.0.1",
                                    "a",
                                    "b.local",
                                    ""};
static const char *const lists[] = {"a,b", "a,b", "n[01-02]", "b", "a,b,c", "a[", "laptop,a"};

/* Mostly the variables of a rule; fewer or more of them. */
static void random_variables(struct walk *walk, char *out, size_t size)
{
    static const char *const sets[4][6] = {
        {"JOB_COMPLETION_INDEX"},
        {"MASTER_ADDR", "MASTER_PORT"},
        {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
        {"SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
         "SLURM_JOB_ID", "SLURM_STEP_ID"},
    };
    static const char *const others[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_NODELIST", "SLURMD_NODENAME",
                                         "SLURM_NNODES", "RANK"};
    const char *const *set = sets[walk_below(walk, 4)];
    out[0] = '\0';
    for (int i = 0; i < 7; i++) {
        const char *name = i < 6 ? set[i] : walk_pick(walk, others);
        if (!name || walk_one_in(walk, i < 6 ? 12 : 1 + walk_below(walk, 3)))
            continue;
        const char *value = strstr(name, "LIST")                             ? walk_pick(walk, lists)
                            : strstr(name, "ADDR") || strstr(name, "D_NODE") ? walk_pick(walk, names)
                            : walk_one_in(walk, 2)                           ? walk_pick(walk, numbers)
                            : strstr(name, "NUM") || strstr(name, "SIZE")    ? "2"
                                                                             : "1";
        assert_true(text_append(out, size, "%s=%s ", name, value));
    }
}

static void one_place(struct walk *walk)
{
    static const int nodes[] = {0, 0, 0, 1, 2, 3, 4};
    static const int64_t ports[] = {-1, -1, -1, 0, 1, 29500};
    char variables[600];
    random_variables(walk, variables, sizeof variables);
    const struct node_identity_known known = {.nodes = walk_pick(walk, nodes),
                                              .master_addr =
                                                  walk_one_in(walk, 3) ? walk_pick(walk, names) : NULL,
                                              .master_port = walk_pick(walk, ports),
                                              .host_name = walk_pick(walk, names),
                                              .full_name = walk_one_in(walk, 3) ? walk_pick(walk, names) : "",
                                              .get = fake_environment,
                                              .context = variables};
    struct node_identity_found found;
    struct muster_error err = {0};
    int result = node_identity_find(&known, &found, &err);
    walk_saw_number(walk, result);
    walk_saw_text(walk, result < 0 ? err.text : NULL);
    if (result < 0)
        return;
    const int64_t place[] = {found.nodes, found.node_rank, found.master_port};
    walk_saw(walk, place, sizeof place);
    walk_saw_text(walk, found.source);
    walk_saw_text(walk, found.master_addr);
    walk_saw_text(walk, found.job_id);
}

static void places_are_found_where_they_were(void **state)
{
    (void)state;
    keep("tests/unit/launcher/golden/identity_walks.txt", one_place);
}

/* -- texts of few characters -- */

static void random_text(struct walk *walk, const char *characters, char *out, int64_t longest)
{
    int64_t length = walk_below(walk, longest + 1);
    for (int64_t i = 0; i < length; i++)
        out[i] = characters[walk_below(walk, (int64_t)strlen(characters))];
    out[length] = '\0';
}

static void one_text(struct walk *walk)
{
    char text[32], host[16];
    random_text(walk, "0012334,,::/;9", text, 9);
    for (int local = 0; local < 4; local++)
        walk_saw_number(walk, config_streams(text, local));
    random_text(walk, "0011239a,,--[[]]", text, 14);
    int64_t count = slurm_host_count(text, NULL);
    walk_saw_number(walk, count);
    for (int64_t i = -1; i <= (count < 4 ? count : 4); i++) {
        int result = slurm_host_at(text, i, host, sizeof host, NULL);
        walk_saw_number(walk, result);
        walk_saw_text(walk, result == 0 ? host : NULL);
    }
}

static void texts_are_read_as_they_were(void **state)
{
    (void)state;
    keep("tests/unit/launcher/golden/text_walks.txt", one_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_found_where_they_were),
        cmocka_unit_test(texts_are_read_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
