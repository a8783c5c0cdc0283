/* Pages as texts: they become models, and a mistake is refused with its line or with the key of config.json.
 */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "runtime/pages/page.h"

/* Line by line, so that cases can replace one; NULL at the end. */
static const char *const lines[] = {
    "model_type: mine",
    "base: model.",
    "adapters: [up, down]",
    "order: [down, up, norm]",
    "dropout: [drop]",
    "only: {act: silu | swish, old: 'null', plain: true}",
    "values:",
    "- hidden = size('hidden')",
    "- heads = size('heads', 2)",
    "- wide = 4 * hidden // (1 + 1)",
    "- list = list('kinds', 3)",
    "- rotary = rope(hidden / heads, 32)",
    "positions: size('positions', 16)",
    "layers: 3",
    "embedding:",
    "- x = embedding('model.table', 7, hidden)",
    "names: model.block.{}",
    "block:",
    "- q = rotary(x, heads, rotary) when layer % 2 == 0",
    "- h = if(layer % 2 == 0, q, activation(x, 'tanh'))",
    "- h = rms_norm(attention(h, x, scale(x, 2), heads, heads), 'norm', 1e-5)",
    "- x = add(x, linear(activation(linear(h, wide, 'up', true), 'silu'), hidden, 'down'))",
    "head:",
    "- logits(x, 'lm_head', 7, flag('tied', false))",
};
enum { LINES = sizeof lines / sizeof *lines };

#define CONFIG "{\"model_type\":\"mine\",\"hidden\":8%s}"

/* number: of the line that `line` replaces, from 1; 0: none. */
static struct page *open_page(int number, const char *line, const char *more, struct muster_error *err)
{
    scope_buffer text = {0};
    char config[200];
    for (int i = 0; i < LINES; i++)
        assert_int_equal(buffer_printf(&text, "%s\n", i + 1 == number ? line : lines[i]), 0);
    (void)snprintf(config, sizeof config, CONFIG, more);
    json_t *json = json_loads(config, 0, NULL);
    assert_non_null(json);
    struct page *page = page_open("mine.yaml", false, text.data, text.length, "config.json", json, err);
    json_decref(json);
    return page;
}

static void a_page_is_a_model(void **state)
{
    (void)state;
    struct muster_error err = {0};
    GUARD(guard_page) struct page *page = open_page(0, NULL, ",\"drop\":0.2,\"tied\":true", &err);
    if (!page)
        fail_msg("%s", err.text);
    GUARD(guard_model) struct model *model = page_model(page, NULL, &err);
    assert_non_null(model);
    assert_int_equal(model->layer_count, 5);
    assert_int_equal(model->max_positions, 16);
    assert_int_equal(model->param_count, 1 + 3 * 4);
    assert_string_equal(model->params[0].name, "model.table.weight");
    assert_string_equal(model->params[5].name, "model.block.1.norm.weight");
    assert_int_equal(model->params[2].dim[0], 16);
    assert_string_equal(page_tied(page), "lm_head.weight");
    assert_string_equal(page_tied_to(page), "model.table.weight");
    assert_string_equal(page_base(page), "model.");
    assert_true(page_dropout(page) == 0.2);
    assert_null(page_own(page));
    assert_true(page_order(page, "model.table.weight") < page_order(page, "model.block.0.down.weight"));
    assert_true(page_order(page, "model.block.0.down.weight") < page_order(page, "model.block.0.up.weight"));
    assert_true(page_order(page, "model.block.0.norm.weight") <
                page_order(page, "model.block.1.down.weight"));
    struct lora lora = {.rank = 2, .alpha = 4};
    assert_int_equal(page_targets(page, &lora, &err), 0);
    GUARD(guard_model) struct model *adapted = page_model(page, &lora, &err);
    assert_non_null(adapted);
    assert_int_equal(adapted->param_count, model->param_count + 3 * 2 * 2);
}

static void mistakes_are_refused_with_their_line(void **state)
{
    static const struct {
        int number;
        const char *line, *says;
    } cases[] = {
        {1, "model_type: other", "config.json: model_type is mine, and mine.yaml:1 is a page of other"},
        {2, "bases: model.", "mine.yaml:2: a page has no key bases"},
        {3, "adapters: up", "mine.yaml:3: adapters is "},
        {3, "", "mine.yaml:1: adapters is missing"},
        {8, "- hidden = size('width')", "config.json: width is missing"},
        {8, "- hidden = size(8)", "mine.yaml:8: the name of a key is a text"},
        {8, "- hidden = depth('hidden')", "mine.yaml:8: there is no function depth"},
        {8, "- hidden = size('hidden', 1, 2, 3)",
         "mine.yaml:8: size(key absent? null?) has no argument number"},
        {8, "- hidden = size(ley='hidden')", "mine.yaml:8: size(key absent? null?) has no argument ley"},
        {8, "- hidden = size()", "mine.yaml:8: size(key absent? null?) lacks its argument number 1"},
        {8, "- hidden = size('hidden'", "mine.yaml:8: ',' is missing"},
        {9, "- heads = 'two' + 1", "mine.yaml:9: + is of numbers"},
        {9, "- heads = 4 / 0", "mine.yaml:9: 4 / 0 has no value"},
        {9, "- heads = nobody", "mine.yaml:9: the name nobody has no value here"},
        {9, "- heads = 2 3", "mine.yaml:9: '3' follows the end of the statement"},
        {9, "- {heads: 2}", "mine.yaml:9: a mapping is where a statement is expected"},
        {9, "- heads = ((((((((((((((((((((((((((((((((((((((((((2", "mine.yaml:9: an expression is nested"},
        {9, "- heads = linear(hidden, 4, 'up')", "mine.yaml:9: operations are of embedding, block and head"},
        {10, "- wide = 4.5", "mine.yaml:22: a width is 4.5; it must be a whole number"},
        {12, "- rotary = 1", "mine.yaml:19: rotary(x heads rope) takes a result of rope()"},
        {13, "positions: 0", "mine.yaml:13: positions is 0; it must be"},
        {14, "layers: 2000", "mine.yaml:14: layers is 2000; it must be a whole number from 1 to 1024"},
        {16, "- y = embedding('model.table', 7, hidden)",
         "mine.yaml:16: the statements before give x no rows"},
        {17, "names: model.block", "mine.yaml:17: the name of a block has {} where its number is"},
        {19, "- q = rotary(x, 3, rotary) when layer % 2 == 0", "mine.yaml:19: "},
        {20, "- h = q", "mine.yaml:21: an operation reads rows of another layer"},
        {21, "- h = attention(x, x, x, heads, heads)", "mine.yaml:21: "},
        {22, "- x = add(x, linear(h, wide, 'up'))",
         "mine.yaml:22: mine-3: layer model.block.0: add reads values of 8 and 16"},
        {22, "- x = add(x, activation(h, 'mish'))", "mine.yaml:22: there are the activations gelu_tanh"},
        {24, "- x = x", "mine.yaml:24: the head does not end in logits"},
        {24, "- classes(first(x), 2, 'fc')", "mine.yaml:24: classes is the end of pages of labelled texts"},
        {24, "- logits(mean(x), 'lm_head', 7)", "mine.yaml:24: mean is of pages of labelled texts"},
        {21, "- h = attention(h, x, scale(x, 2), heads, heads, both=true)",
         "mine.yaml:21: attention sees both sides in pages of labelled texts"},
        {24, "- logits(x, 'lm_head', 8, true)", "mine.yaml:24: the head is tied to an embedding"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        GUARD(guard_page) struct page *page = open_page(cases[i].number, cases[i].line, "", &err);
        if (page || !strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].line, page ? "is taken" : err.text);
    }
}

static void keys_that_change_the_model_are_refused_by_name(void **state)
{
    static const struct {
        const char *more, *says; /* says NULL: it is taken */
    } cases[] = {
        {",\"act\":\"swish\",\"plain\":true,\"old\":null", NULL},
        {",\"act\":\"relu\"", "config.json: act is \"relu\", which is not supported: silu | swish is"},
        {",\"act\":7", "config.json: act is 7"},
        {",\"plain\":false", "config.json: plain is false"},
        {",\"old\":1", "config.json: old is 1, which is not supported: it has to be absent"},
        {",\"heads\":0", "config.json: heads is no whole number above 0"},
        {",\"heads\":2.0", "config.json: heads is no whole number above 0"},
        {",\"kinds\":[1,2]", "config.json: kinds is [1,2], which is not supported: it has to be a list"},
        {",\"kinds\":[1,2,3]", NULL},
        {",\"drop\":\"x\"", "config.json: drop is no number"},
        {",\"tied\":1", "config.json: tied is no true or false"},
        {",\"rope_theta\":0", "config.json: rope_theta is 0"},
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", "config.json: factor is 0.5"},
        {",\"rope_scaling\":{\"type\":\"axial\"}", "the type of rotary positions is \"axial\""},
        {",\"rope_scaling\":7", "config.json: rope_scaling is 7"},
        {",\"partial_rotary_factor\":0.5", "config.json: partial_rotary_factor is"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        GUARD(guard_page) struct page *page = open_page(0, NULL, cases[i].more, &err);
        if ((page != NULL) != !cases[i].says || (!page && !strstr(err.text, cases[i].says)))
            fail_msg("%s: %s", cases[i].more, page ? "is taken" : err.text);
    }
}

/* Every page that comes along is a page, whatever config.json lacks. */
static void pages_that_come_along_are_pages(void **state)
{
    char names[512], *rest = NULL;
    (void)state;
    (void)snprintf(names, sizeof names, "%s", page_families());
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        struct muster_error err = {0};
        size_t length;
        const char *text = page_of_family(name, &length);
        assert_non_null(text);
        json_t *json = json_pack("{s:s}", "model_type", name);
        GUARD(guard_page)
        struct page *page = page_open(name, false, text, length, "config.json", json, &err);
        json_decref(json);
        if (page) /* all its keys have defaults: transformers' classifiers */
            assert_true(page_classifies(page));
        else if (strncmp(err.text, "config.json: ", 13) != 0 || !strstr(err.text, "is missing"))
            fail_msg("%s: %s", name, err.text);
    }
}

/* ---- classifiers ---- */

static struct page *open_classifier(const char *more, const char *head, struct muster_error *err)
{
    static const char page[] =
        "model_type: mine\nclassifier: MineForTexts\nbase: m.\ndrawn: [m.pooler., fc.]\n"
        "unread: [cls.]\nadapters: [q]\nvalues: []\npositions: 8\nlayers: 1\nembedding:\n"
        "- x = add(embedding('m.table', 7, 4), types('m.types', 2, 4))\nnames: m.block.{}\n"
        "block:\n- q = scale(x, 2)\n- k = scale(x, 3)\n"
        "- x = dropout(attention(q, k, x, 2, 2, 2, both=true), 0.1)\n"
        "head:\n- h = linear(first(layer_norm(x, 'norm', 1e-5, false)), 4, 'm.pooler')\n";
    scope_buffer text = {0};
    char config[200];
    assert_int_equal(buffer_printf(&text, "%s- %s\n", page, head), 0);
    (void)snprintf(config, sizeof config, "{\"model_type\":\"mine\"%s}", more);
    json_t *json = json_loads(config, 0, NULL);
    assert_non_null(json);
    struct page *opened = page_open("mine.yaml", false, text.data, text.length, "config.json", json, err);
    json_decref(json);
    return opened;
}

static const char classes[] = "classes(h, labels(), 'fc')";

static void a_classifier_has_labels(void **state)
{
    static const char *const names[] = {"good", "bad", "so so"};
    struct muster_error err = {0};
    (void)state;
    GUARD(guard_page) struct page *page = open_classifier("", classes, &err);
    if (!page)
        fail_msg("%s", err.text);
    assert_int_equal(page_labels(page), 2);
    assert_null(page_label(page, 1));
    assert_true(page_changes_config(page)); /* its class was not named */
    assert_int_equal(page_set_labels(page, names, 3, &err), 0);
    assert_int_equal(page_labels(page), 3);
    assert_string_equal(page_label(page, 2), "so so");
    GUARD(guard_model) struct model *model = page_model(page, NULL, &err);
    assert_non_null(model);
    assert_int_equal(model->input_count, 4);
    assert_string_equal(model->inputs[1].name, "types");
    assert_true(model->inputs[2].lengths);
    const struct param_desc *bias = &model->params[model->param_count - 1];
    assert_string_equal(bias->name, "fc.bias");
    assert_int_equal(bias->dim[0], 3);
    assert_true(page_may_lack(page, "m.pooler.weight") && page_may_lack(page, "fc.bias"));
    assert_false(page_may_lack(page, "m.table.weight") || page_may_lack(page, "norm.weight"));
    assert_true(page_leaves_unread(page, "cls.bias"));
    assert_false(page_leaves_unread(page, "m.cls.bias"));
}

static void labels_that_are_there_change_nothing(void **state)
{
    static const char *const names[] = {"no", "yes"};
    static const char config[] =
        ",\"architectures\":[\"MineForTexts\"],\"id2label\":{\"0\":\"no\",\"1\":\"yes\"}";
    struct muster_error err = {0};
    (void)state;
    GUARD(guard_page) struct page *page = open_classifier(config, classes, &err);
    if (!page)
        fail_msg("%s", err.text);
    assert_int_equal(page_set_labels(page, names, 2, &err), 0);
    assert_false(page_changes_config(page));
    assert_int_equal(page_set_labels(page, NULL, 2, &err), 0);
    assert_true(page_changes_config(page));
    assert_null(page_label(page, 0));
}

static void labels_that_no_classifier_has_are_refused(void **state)
{
    static const struct {
        const char *more, *head, *says;
    } cases[] = {
        {",\"num_labels\":1", classes, "config.json: num_labels is 1, which is not supported: two labels"},
        {",\"id2label\":{\"0\":\"x\"}", classes,
         "config.json: id2label is {\"0\":\"x\"}, which is not supported"},
        {",\"id2label\":7", classes, "config.json: id2label is no map"},
        {"", "logits(h, 'fc', 7)", "mine.yaml:19: a page of labelled texts (classifier) ends in classes"},
        {"", "classes(x, 2, 'fc')", "mine.yaml:19: "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        GUARD(guard_page) struct page *page = open_classifier(cases[i].more, cases[i].head, &err);
        if (page || !strstr(err.text, cases[i].says))
            fail_msg("%s %s: %s", cases[i].more, cases[i].head, page ? "is taken" : err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_a_model),
        cmocka_unit_test(mistakes_are_refused_with_their_line),
        cmocka_unit_test(keys_that_change_the_model_are_refused_by_name),
        cmocka_unit_test(pages_that_come_along_are_pages),
        cmocka_unit_test(a_classifier_has_labels),
        cmocka_unit_test(labels_that_are_there_change_nothing),
        cmocka_unit_test(labels_that_no_classifier_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
