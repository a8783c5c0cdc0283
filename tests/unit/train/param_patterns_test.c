/* Parameters chosen by patterns of their names. */
#include "tests/support/cmocka_all.h"

#include <string.h>

#include "runtime/model/architectures.h"
#include "runtime/model/param_patterns.h"

static struct model *small(void)
{
    const struct gpt2_config config = {
        .layers = 12, .channels = 8, .heads = 2, .vocab = 16, .max_positions = 4};
    struct model *model = gpt2_create(&config, NULL);
    assert_non_null(model);
    return model;
}

static void frozen_by_name(void **state)
{
    (void)state;
    static char *const patterns[] = {(char *)"wte.*", (char *)"h.1.*", NULL};
    struct model *model = small();
    int frozen = 0;
    assert_int_equal(param_patterns_freeze(model, patterns, NULL), 0);
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *param = &model->params[i];
        bool named = !strncmp(param->name, "wte.", 4) || !strncmp(param->name, "h.1.", 4); /* not h.10 */
        assert_int_equal(param->trainable, !named);
        frozen += named;
    }
    assert_int_equal(frozen, 13);
    assert_int_equal(param_patterns_freeze(model, NULL, NULL), 0);
    model_destroy(model);
}

static void decay_by_dimension_and_name(void **state)
{
    (void)state;
    static char *const spared[] = {(char *)"w?e.weight", NULL};
    struct model *model = small();
    for (int all = 0; all < 2; all++) {
        enum param_decay decay = all ? PARAM_DECAY_ALL : PARAM_DECAY_MATRICES;
        assert_int_equal(param_patterns_decay(model, decay, spared, NULL), 0);
        for (int i = 0; i < model->param_count; i++) {
            const struct param_desc *param = &model->params[i];
            bool decays = (all || param->ndim == 2) && param->name[0] != 'w';
            assert_int_equal(param->parameter_class, decays ? 0 : 1);
        }
    }
    model_destroy(model);
}

static void what_cannot_be_meant_is_an_error(void **state)
{
    (void)state;
    static char *const none[] = {(char *)"h.12.*", NULL}, *const all[] = {(char *)"*", NULL};
    struct model *model = small();
    struct muster_error err = {0};
    assert_int_equal(param_patterns_freeze(model, none, &err), -1);
    assert_string_equal(err.text,
                        "'h.12.*' matches no parameter of gpt2-12x8; their names are like h.6.ln_1.weight");
    assert_int_equal(param_patterns_decay(model, PARAM_DECAY_ALL, none, &err), -1);
    assert_int_equal(param_patterns_freeze(model, all, &err), -1);
    assert_string_equal(err.text, "all 148 parameters of gpt2-12x8 are frozen: there is nothing to train");
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_by_name),
        cmocka_unit_test(decay_by_dimension_and_name),
        cmocka_unit_test(what_cannot_be_meant_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
