/* tree_no_yaml_test.c - trees where libmuster is built alone: JSON is read, and YAML is an error that says
 * so. */
#include "proto/tree/tree.h"
#include "tests/support/cmocka_all.h"

static int parse(const char *text, struct tree *tree, struct muster_error *err)
{
    return tree_parse("page", text, strlen(text), tree, err);
}

static void json_is_read(void **state)
{
    struct tree tree;
    struct muster_error err = {0};
    (void)state;
    if (parse("{\"a\": [1, true]}", &tree, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(tree.document_count, 1);
    tree_free(&tree);
}

static void all_else_is_an_error_with_the_way_out(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"a: 1\n", "page: it is not JSON, and this libmuster was built without YAML"},
        {"", "page: it is not JSON"},
        {"{\"a\": 1,\n \"b\" 2}", "page:2:"}, /* the JSON reader got further */
    };
    struct tree tree;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_int_equal(parse(cases[i].text, &tree, &err), -1);
        if (!strstr(err.text, cases[i].said))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(all_else_is_an_error_with_the_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
