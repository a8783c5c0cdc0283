/* Where parameters lie: every element once, in the part of one rank, for random models and worlds. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "runtime/shard/shard_layout.h"
#include "tests/support/walk.h"

static struct shard_layout random_layout(uint64_t seed, int rank, int size)
{
    struct walk w = walk_begin(seed);
    struct shard_layout layout = {.rank = rank, .size = size, .element_bytes = 4, .gradient_bytes = 4};
    int groups = 1 + (int)walk_below(&w, 8);
    for (int g = 0; g < groups; g++) {
        char name[32];
        snprintf(name, sizeof name, "group.%d", g);
        assert_int_equal(shard_layout_group(&layout, name, walk_one_in(&w, 4), NULL), g);
        int params = 1 + (int)walk_below(&w, 6);
        for (int p = 0; p < params; p++) {
            int64_t elements = 1 + (walk_one_in(&w, 3) ? walk_below(&w, 2000000) : walk_below(&w, 100));
            snprintf(name, sizeof name, "param.%d.%d", g, p);
            assert_true(shard_layout_parameter(&layout, name, elements, (int)walk_below(&w, 8), NULL) >= 0);
        }
    }
    assert_int_equal(shard_layout_finish(&layout, NULL), 0);
    return layout;
}

static void every_element_has_one_rank(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        int size = 1 + (int)(seed % 7);
        int64_t next[64] = {0};
        for (int rank = 0; rank < size; rank++) {
            struct shard_layout layout = random_layout(seed, rank, size);
            for (int i = 0; i < layout.param_count; i++) {
                const struct shard_param *p = &layout.params[i];
                const struct shard_group *g = &layout.groups[p->group];
                assert_int_equal(p->offset % SHARD_ALIGN_ELEMENTS, 0);
                assert_int_equal(g->elements, g->part * size);
                assert_true(p->offset + p->elements <= g->elements);
                if (!p->part)
                    continue;
                assert_int_equal(p->first, next[i]);
                assert_int_equal(rank * g->part + p->part_offset, p->offset + p->first);
                assert_true(p->part_offset + p->part <= g->part);
                next[i] += p->part;
            }
            if (rank == size - 1) {
                for (int i = 0; i < layout.param_count; i++)
                    assert_int_equal(next[i], layout.params[i].elements);
            }
            shard_layout_free(&layout);
        }
    }
}

static void slots_are_shared_by_groups_of_about_their_size(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct shard_layout layout = random_layout(seed, 0, 2);
        int groups = 0, trainable = 0;
        for (int i = 0; i < layout.group_count; i++) {
            const struct shard_group *g = &layout.groups[i];
            int64_t bytes = g->elements * 4, slot = layout.classes[g->slot_class].bytes;
            assert_true(bytes <= slot);
            assert_true(2 * (bytes + SHARD_PAGE_BYTES) > slot);
        }
        for (int i = 0; i < layout.class_count; i++) {
            assert_int_equal(layout.classes[i].bytes % SHARD_PAGE_BYTES, 0);
            groups += layout.classes[i].groups;
            trainable += layout.classes[i].trainable;
        }
        assert_int_equal(groups, layout.group_count);
        for (int i = 0; i < layout.group_count; i++)
            trainable -= !layout.groups[i].frozen;
        assert_int_equal(trainable, 0);
        shard_layout_free(&layout);
    }
}

static void hashes_differ_where_models_do(void **state)
{
    (void)state;
    static const struct {
        const char *group, *param;
        int64_t elements;
        int parameter_class;
        bool frozen;
    } all[] = {{"a", "w", 3, 0, false}, {"b", "w", 3, 0, false}, {"a", "v", 3, 0, false},
               {"a", "w", 4, 0, false}, {"a", "w", 3, 1, false}, {"a", "w", 3, 0, true}};
    uint64_t hashes[6];
    for (int i = 0; i < 6; i++) {
        struct shard_layout layout = {.size = 1, .element_bytes = 4, .gradient_bytes = 4};
        assert_int_equal(shard_layout_group(&layout, all[i].group, all[i].frozen, NULL), 0);
        assert_int_equal(
            shard_layout_parameter(&layout, all[i].param, all[i].elements, all[i].parameter_class, NULL), 0);
        hashes[i] = shard_layout_hash(&layout, 0);
        for (int j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
        shard_layout_free(&layout);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct shard_layout layout = {.size = 1, .element_bytes = 4, .gradient_bytes = 4};
    assert_int_equal(shard_layout_finish(&layout, &err), -1);
    assert_non_null(strstr(err.text, "no groups"));
    assert_int_equal(shard_layout_parameter(&layout, "w", 1, 0, &err), -1);
    assert_non_null(strstr(err.text, "w comes before the first group"));
    assert_int_equal(shard_layout_group(&layout, "empty", false, &err), 0);
    assert_int_equal(shard_layout_parameter(&layout, "w", 0, 0, &err), -1);
    assert_non_null(strstr(err.text, "w has 0 elements"));
    assert_int_equal(shard_layout_finish(&layout, &err), -1);
    assert_non_null(strstr(err.text, "group empty has no parameters"));
    shard_layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_rank),
        cmocka_unit_test(slots_are_shared_by_groups_of_about_their_size),
        cmocka_unit_test(hashes_differ_where_models_do),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
