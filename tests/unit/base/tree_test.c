/* tree_test.c - YAML and JSON as trees: meaning of scalars, places, anchors and merges, and errors.
 */
#include "proto/tree/tree.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static int parse(const char *text, struct tree *tree, struct muster_error *err)
{
    *err = (struct muster_error){0};
    return tree_parse("t.yaml", text, strlen(text), tree, err);
}

/* A node as text: i:8 f:0.5 b:true n s'text' [a b] {k=v} */
static void show(const struct tree_node *node, struct buffer *out)
{
    switch (node->kind) {
    case TREE_NULL:
        buffer_text(out, "n");
        break;
    case TREE_BOOL:
        buffer_printf(out, "b:%s", node->boolean ? "true" : "false");
        break;
    case TREE_INT:
        buffer_printf(out, "i:%lld", (long long)node->integer);
        break;
    case TREE_FLOAT:
        buffer_printf(out, "f:%g", node->real);
        break;
    case TREE_TEXT:
        buffer_printf(out, "s'%s'", node->text);
        break;
    case TREE_LIST:
        for (size_t i = 0; i < node->count; i++) {
            buffer_text(out, i ? " " : "[");
            show(node->items[i], out);
        }
        buffer_text(out, node->count ? "]" : "[]");
        break;
    case TREE_MAP:
        for (size_t i = 0; i < node->count; i++) {
            buffer_printf(out, "%s%s=", i ? " " : "{", node->entries[i].key);
            show(node->entries[i].value, out);
        }
        buffer_text(out, node->count ? "}" : "{}");
    }
}

static void means(const char *yaml, const char *expected)
{
    struct tree tree;
    struct muster_error err;
    struct buffer out = {0};
    if (parse(yaml, &tree, &err) < 0)
        fail_msg("%s: %s", yaml, err.text);
    for (size_t i = 0; i < tree.document_count; i++) {
        buffer_text(&out, i ? " | " : "");
        show(tree.documents[i], &out);
    }
    assert_string_equal(out.data ? out.data : "", expected);
    buffer_free(&out);
    tree_free(&tree);
}

static void refused(const char *text, enum muster_error_code code, const char *why)
{
    struct tree tree;
    struct muster_error err;
    if (parse(text, &tree, &err) == 0)
        fail_msg("accepted: %.200s", text);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
    assert_null(tree.documents);
}

static void scalars(void **state)
{
    (void)state;
    means("[yes, No, on, OFF, y, N, true, False]",
          "[b:true b:false b:true b:false b:true b:false b:true b:false]");
    means("['yes', \"no\", !!str on, yEs, yess]", "[s'yes' s'no' s'on' s'yEs' s'yess']");
    means("[~, null, NULL, 'null', '']", "[n n n s'null' s'']");
    means("a:\nb: null", "{a=n b=n}");
    means("[1, -7, +5, 010, 0o10, 0x1F, 0b101, 1_000, 08]", "[i:1 i:-7 i:5 i:8 i:8 i:31 i:5 i:1000 f:8]");
    means("[9223372036854775807, -9223372036854775808]", "[i:9223372036854775807 i:-9223372036854775808]");
    means("[9223372036854775808]", "[f:9.22337e+18]");
    means("[1.5, .5, 5., 1e3, -1.5E-3, .inf, -.Inf, .NaN]",
          "[f:1.5 f:0.5 f:5 f:1000 f:-0.0015 f:inf f:-inf f:nan]");
    means("[1.2.3, 0xZ, 12:30:45, 2024-01-01, 1e, -, +, ., 0x, 1-2]",
          "[s'1.2.3' s'0xZ' s'12:30:45' s'2024-01-01' s'1e' s'-' s'+' s'.' s'0x' s'1-2']");
    means("[!!int '5', !!float 5, !local x, ! 5]", "[i:5 f:5 s'x' s'5']");
    means("a: |\n  two\n  lines\nb: >-\n  one\n  line\n", "{a=s'two\nlines\n' b=s'one line'}");
    refused("!!int five", MUSTER_E_INVALID, "t.yaml:1:1: 'five' does not fit its tag");
    refused("!!binary aGk=", MUSTER_E_INVALID, "does not fit its tag");
}

static void keys_and_documents(void **state)
{
    (void)state;
    means("yes: 1\n2: b\n'3': c\n010: d", "{true=i:1 2=s'b' 3=s'c' 8=s'd'}");
    means("a: 1\n---\n---\n# nothing\n---\nb: 2\n...\n", "{a=i:1} | {b=i:2}");
    means("", "");
    means("\xef\xbb\xbf"
          "a: 1",
          "{a=i:1}");
    refused("a: 1\nb: 2\na: 3", MUSTER_E_INVALID, "t.yaml:3:1: key 'a' appears twice");
    refused("{a: {x: 1, x: 2}}", MUSTER_E_INVALID, "t.yaml:1:12: key 'x' appears twice");
    refused("? [a]\n: 1", MUSTER_E_INVALID, "a list cannot be a key");
    refused("~: 1", MUSTER_E_INVALID, "null cannot be a key");
    refused("a: \"x\\0y\"", MUSTER_E_INVALID, "NUL");
    refused("a: b: c", MUSTER_E_INVALID, "t.yaml:1:5: not valid YAML");
    refused("a:\n\tb: 1", MUSTER_E_INVALID, "t.yaml:2:1: not valid YAML");
}

static void places(void **state)
{
    (void)state;
    struct tree tree;
    struct muster_error err;
    assert_int_equal(parse("# x\na:\n  - b: ~\n    c: word\n", &tree, &err), 0);
    const struct tree_node *list = tree_get(tree.documents[0], "a");
    assert_true(list->line == 3 && list->column == 3);
    assert_null(tree_get(list->items[0], "b"));
    assert_non_null(tree_entry(list->items[0], "b"));
    const struct tree_node *word = tree_get(list->items[0], "c");
    assert_true(word->line == 4 && word->column == 8);
    assert_string_equal(tree_text(word), "word");
    assert_int_equal(list->items[0]->entries[1].column, 5);
    assert_null(tree_get(word, "c"));
    assert_null(tree_text(list));
    assert_null(tree_get(NULL, "c"));
    tree_free(&tree);
}

static void anchors_and_merges(void **state)
{
    (void)state;
    means("a: &x {k: 1}\nb: *x\nc: [*x, *x]", "{a={k=i:1} b={k=i:1} c=[{k=i:1} {k=i:1}]}");
    means("a: &x 1\nb: &x 2\nc: *x", "{a=i:1 b=i:2 c=i:2}");
    means("&k key: *k", "{key=s'key'}");
    means("base: &b {x: 1, u: 2}\nd:\n  <<: *b\n  u: 3\n", "{base={x=i:1 u=i:2} d={u=i:3 x=i:1}}");
    means("[{<<: [{a: 1}, {a: 2, b: 2}], c: 3}]", "[{c=i:3 a=i:1 b=i:2}]");
    means("{'<<': 1}", "{<<=i:1}");
    refused("{<<: 1}", MUSTER_E_INVALID, "<< takes a mapping");
    refused("a: *x", MUSTER_E_INVALID, "t.yaml:1:4: alias *x has no anchor before it");
    refused("&x [*x]", MUSTER_E_INVALID, "is inside of its own anchor");
    refused("a: &x 1\n---\nb: *x", MUSTER_E_INVALID, "no anchor");
}

static void json(void **state)
{
    (void)state;
    means("{\"a\": [1, 2.5, true, null, \"x\\/y\"], \"b\": {}}", "{a=[i:1 f:2.5 b:true n s'x/y'] b={}}");
    means("{\"face\": \"\\ud83d\\ude00\", \"n\": -3}", "{face=s'\xf0\x9f\x98\x80' n=i:-3}");
    means(" {\"a\": 1}\n{\"b\": [\"yes\"]} ", "{a=i:1} | {b=[s'yes']}");
    refused("{\"a\": 1,\n \"a\": 2}", MUSTER_E_INVALID, "t.yaml:2:2: key 'a' appears twice");
    refused("{\"face\": \"\\ud83d\\ude00\",\n \"a\": 1 2}", MUSTER_E_INVALID, "t.yaml:2:");
    refused("[~, a: [}", MUSTER_E_INVALID, "not valid YAML");
    refused("{\"e\": \"\\ud83d\\ude00\", \"a\": 1, \"a\": 2}", MUSTER_E_INVALID, "not valid JSON: duplicate");
}

/* What libyaml cannot read keeps its places, too; the second document's count from the text's beginning. */
static void json_has_places(void **state)
{
    (void)state;
    static const char text[] = "{\"f\\\"ace\": \"\\ud83d\\ude00\",\n  \"\xc3\xa4\" : [1,\n -2.5, {}],\"z\":{ "
                               "\"y\":null}}\n {\"a\": true}";
    static const struct {
        int line, column;
    } keys[] = {{1, 2}, {2, 3}, {3, 12}}, values[] = {{1, 12}, {2, 9}, {3, 16}};
    struct tree tree;
    struct muster_error err = {0};
    if (tree_parse("t.json", text, sizeof text - 1, &tree, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(tree.document_count, 2);
    const struct tree_node *root = tree.documents[0];
    assert_int_equal(root->line * 1000 + root->column, 1001);
    assert_int_equal(root->count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(root->entries[i].line * 1000 + root->entries[i].column,
                         keys[i].line * 1000 + keys[i].column);
        assert_int_equal(root->entries[i].value->line * 1000 + root->entries[i].value->column,
                         values[i].line * 1000 + values[i].column);
    }
    const struct tree_node *second = root->entries[1].value->items[1], *inner = root->entries[2].value;
    assert_int_equal(second->line * 1000 + second->column, 3002);
    assert_int_equal(inner->entries[0].value->line * 1000 + inner->entries[0].value->column, 3022);
    assert_int_equal(tree.documents[1]->entries[0].line * 1000 + tree.documents[1]->entries[0].column, 4003);
    tree_free(&tree);
}

/* Nine levels of nine aliases are 400 million values; each must be refused before it is unfolded. */
static void what_costs_too_much_is_rejected(void **state)
{
    (void)state;
    struct buffer text = {0};
    buffer_text(&text, "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for (int i = 1; i < 9; i++) {
        buffer_printf(&text, "a%d: &a%d [", i, i);
        for (int n = 0; n < 9; n++)
            buffer_printf(&text, "%s*a%d", n ? ", " : "", i - 1);
        buffer_text(&text, "]\n");
    }
    refused(text.data, MUSTER_E_LIMIT, "more than 200000 values");
    buffer_clear(&text);
    buffer_text(&text, "m0: &m0 {k: 1}\n");
    for (int i = 1; i < 40; i++)
        buffer_printf(&text, "m%d: &m%d {a%d: *m%d, b%d: *m%d, <<: *m%d}\n", i, i, i, i - 1, i, i - 1, i - 1);
    refused(text.data, MUSTER_E_LIMIT, "more than 200000 values");
    static const char *const nests[] = {"[", "{a: ", "- ", "? ", "{\"a\":", "!!str [", "&a [", "[{"};
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        buffer_clear(&text);
        while (text.length < 1000000)
            buffer_text(&text, nests[i]);
        struct tree tree;
        struct muster_error err;
        assert_int_equal(tree_parse("t.yaml", text.data, text.length, &tree, &err), -1);
        assert_true(strstr(err.text, "nested more than 64 deep") || strstr(err.text, "cannot be a key"));
    }
    buffer_clear(&text);
    while (text.length <= TREE_BYTES_LIMIT)
        buffer_text(&text, "abcdefghijklmnop");
    refused(text.data, MUSTER_E_LIMIT, "larger than 3145728 bytes");
    buffer_clear(&text);
    for (int i = 0; i < 100000; i++)
        buffer_printf(&text, "k%d: 1\n", i);
    refused(text.data, MUSTER_E_LIMIT, "more than 200000 values");
    buffer_clear(&text);
    for (int i = 0; i < 1001; i++)
        buffer_printf(&text, "k%d: &a%d 1\n", i, i);
    refused(text.data, MUSTER_E_LIMIT, "more than 1000 anchors");
    buffer_free(&text);
}

static int parse_both(void *context)
{
    static const char yaml[] = "a: &x {k: [1, b, c, d, e, f, g, h, i, j]}\nc: {<<: *x, 1: 2}\n---\nd: &x 1\n";
    static const char emoji[] = "{\"face\": [\"\\ud83d\\ude00\", 1, 2.5, true, {}]}";
    const char *text = context ? emoji : yaml;
    struct tree tree;
    struct muster_error err = {0};
    int result = tree_parse("t", text, strlen(text), &tree, &err);
    if (result < 0)
        assert_true(err.text[0] && !tree.documents);
    tree_free(&tree);
    return result;
}

static void no_memory(void **state)
{
    (void)state;
    faults_sweep(parse_both, NULL);
    faults_sweep(parse_both, (void *)1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars),
        cmocka_unit_test(keys_and_documents),
        cmocka_unit_test(places),
        cmocka_unit_test(anchors_and_merges),
        cmocka_unit_test(json),
        cmocka_unit_test(json_has_places),
        cmocka_unit_test(what_costs_too_much_is_rejected),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
