/* Chats: what a template is refused for, the forms of records, and tokens that are no targets. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"
#include "trainer/chat/chat.h"
#include "trainer/data/chats.h"
#include "trainer/data/data.h"
#include "trainer/tokens/tokenizer.h"

static char folder[FOLDER_PATH];

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "chats");
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static const char *put_text(const char *name, const char *text)
{
    static char path[FOLDER_PATH + 40];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    return path;
}

/* The text of a template with `messages` of one turn; an error begins with '!'. */
static const char *rendered(const char *template)
{
    static char out[512];
    struct muster_error err = {0};
    struct jinja_spans spans = {0};
    struct chat_counts counts = {0};
    scope_buffer text = {0};
    json_t *record =
        json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": [{\"a\": [1, 2.5, "
                   "null, true, \"\\u00e9\\n\"]}]}",
                   0, NULL);
    struct chat *chat =
        chat_open(&(struct chat_options){.template_name = put_text("t.jinja", template)}, &err);
    if (chat && !chat_render(chat, record, "text", &text, &spans, &counts, &err))
        (void)snprintf(out, sizeof out, "%s", text.data ? text.data : "");
    else
        (void)snprintf(out, sizeof out, "!%s",
                       strstr(err.text, "t.jinja:") ? strstr(err.text, "t.jinja:") : err.text);
    mem_free(spans.span);
    chat_destroy(chat);
    json_decref(record);
    return out;
}

/* Texts are those of jinja2 3.1 in the environment of transformers. */
static void texts_are_those_of_jinja2(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
        {"a  {%- if true -%}  b  {%- endif %}\n c", "ab c"},
        {"a {{- ' x ' -}} b", "a x b"},
        {"{# no #}\nx{#- no -#} y", "xy"},
        {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e3 }} {{ 1 + 2 * 3 - 4 }}",
         "3 -4 2 3.5 1024 1000.0 3"},
        {"{{ 'a' ~ 1 ~ none ~ true }}{{ [1, 'a', (2,), {'k': 0.1}] }}",
         "a1NoneTrue[1, 'a', (2,), {'k': 0.1}]"},
        {"{{ tools | tojson }}", "[{\"a\": [1, 2.5, null, true, \"\xC3\xA9\\n\"]}]"},
        {"{{ tools[0] | tojson(indent=2) }}",
         "{\n  \"a\": [\n    1,\n    2.5,\n    null,\n    true,\n    \"\xC3\xA9\\n\"\n  ]\n}"},
        {"{{ 'aXbXc'.split('X', 1) }}{{ ' a  b '.split() }}{{ 'abc'[::-1] }}{{ 'h\xC3\xA9llo'[1] }}{{ "
         "'abc'[-2:] }}",
         "['a', 'bXc']['a', 'b']cba\xC3\xA9"
         "bc"},
        {"{% for x in [1,2,3,4] if x % 2 == 0 %}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}",
         "1False2True"},
        {"{% for x in [] %}{% else %}none{% endfor %}", "none"},
        {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif "
         "%}{{ x }}{% endfor %}",
         "013"},
        {"{% set ns = namespace(n=0) %}{% for x in 'abc' %}{% set ns.n = ns.n + 1 %}{% set y = x %}{% endfor "
         "%}{{ ns.n }}{{ y is defined }}",
         "3False"},
        {"{% macro m(a, b='-', *c) %}{{ a }}{{ b }}{% endmacro %}",
         "!t.jinja:1: '*' stands where a name is needed"},
        {"{% macro m(a, b='-') %}{{ a }}{{ b }}{{ varargs | length }}{{ caller() if caller }}{% endmacro "
         "%}{{ m(1) }}{% call m(2, 3, 4) %}in{% endcall %}",
         "1-023"
         "1in"},
        {"{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}{% filter upper | replace('B', 'z') %}abc{% "
         "endfilter %}",
         "A1AzC"},
        {"{{ 3 in [1, 2, 3] }}{{ 'b' not in 'abc' }}{{ 1 < 2 <= 2 }}{{ not 0 or 5 }}{{ 'x' if false }}",
         "TrueFalseTrueTrue"},
        {"{{ none is none }}{{ x is undefined }}{{ 4 is divisibleby 2 }}{{ 'a' is in ['a'] }}{{ {} is "
         "mapping }}{{ 3 is not string }}",
         "TrueTrueTrueTrueTrueTrue"},
        {"{{ x | default('d') }}{{ '' | d('e', true) }}{{ [3, 1, 2] | sort | join(',') }}{{ ['b', 'A'] | "
         "sort }}",
         "de1,2,3['A', 'b']"},
        {"{{ messages | map(attribute='role') | list }}{{ messages | selectattr('role', 'equalto', 'user') | "
         "list | length }}",
         "['user']1"},
        {"{{ 'a\nb' | indent(2) }}{{ '%s-%d' % ('a', 5) }}{{ 'stra\xC3\x9F"
         "e' | upper }}{{ 'they\\'re ok'.title() }}",
         "a\n  ba-5STRASSEThey'Re Ok"},
        {"{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"},
        {"{{ {'a': 1}.items() | list }}{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}{{ v }}{% endfor %}",
         "[('a', 1)]a1b2"},
        {"{% for m in messages recursive %}{{ m.role or loop([]) }}{{ loop.cycle('x', 'y') }}{% endfor %}",
         "userx"},
        {"{{ 1e22 }}{{ 123456789.123 }}{{ 1e-7 }}{{ 100000000000000000.0 }}{{ 5.0 }}",
         "1e+22123456789.1231e-071e+175.0"},
        {"{{ 'it\\'s' ~ ['it\\'s', 'a\"b'] }}", "it's[\"it's\", 'a\"b']"},
        /* errors name the line */
        {"\n{{ a.b.c }}", "!t.jinja:2: 'a' is undefined"},
        {"\n\n{% include 'x' %}", "!t.jinja:3: the statement 'include' is not supported in a chat template"},
        {"{{ 1 | wordwrap }}", "!t.jinja:1: the filter 'wordwrap' is not supported in a chat template"},
        {"{{ 1 is weird }}",
         "!t.jinja:1: the test 'weird' is not supported in a chat template, or lacks its argument"},
        {"{{ messages.append(1) }}",
         "!t.jinja:1: the method 'append' would change a list, and templates may not"},
        {"{{ raise_exception('no ' ~ 1) }}", "!t.jinja:1: the template refuses the chat: no 1"},
        {"{{ 1 + 'a' }}", "!t.jinja:1: a number + a text is not possible"},
        {"{{ 1 / 0 }}", "!t.jinja:1: a division by zero"},
        {"{% if true %}", "!t.jinja:1: 'elif' is missing"},
        {"{{ 'a }}", "!t.jinja:1: a text in quotes does not end"},
        {"{% for x in range(1000000) %}{% endfor %}", "!t.jinja:1: range has more than 100000 numbers"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
         "!t.jinja:1: calls are nested more than 200 deep"},
        {"{% set x = 5 %}{% set x.y = 1 %}",
         "!t.jinja:1: 'x' is a number: attributes of a namespace alone may be set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(rendered(cases[i][0]), cases[i][1]);
}

static void hostile_templates_end(void **state)
{
    (void)state;
    static char deep[700];
    memset(deep, '(', 303);
    memcpy(deep, "{{ ", 3);
    deep[303] = '1';
    memset(deep + 304, ')', 300);
    memcpy(deep + 604, " }}", 4);
    assert_string_equal(rendered(deep), "!t.jinja:1: expressions are nested more than 200 deep");
    assert_true(
        rendered(
            "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}")
            [0] == '!');
    assert_true(
        rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")[0] == '!');
}

/* ---- records ---- */

enum { T = 80 };

/* The targets of the only sample of a line; '.' is no target. */
static const char *targets_of(const char *line, struct data_options options, struct muster_error *err)
{
    static char out[T + 1];
    int32_t tokens[T], targets[T];
    struct chat *chat = chat_open(&(struct chat_options){.template_name = "chatml"}, err);
    options.chat = chat;
    options.positions = T;
    options.path = put_text("c.jsonl", line);
    struct data *data = data_open(&options, err);
    chat_destroy(chat);
    if (!data)
        return NULL;
    assert_true(data_sample(data, 0, tokens, targets, err) >= 0);
    for (int t = 0; t < T; t++)
        out[t] = targets[t] < 0 ? '.' : targets[t] == '\n' ? '/' : (char)targets[t];
    out[T] = '\0';
    for (size_t end = T; end > 0 && out[end - 1] == '.';)
        out[--end] = '\0';
    data_destroy(data);
    return out;
}

static void every_form_masks_the_others(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"A\"}]}",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": "
        "\"A\"}]}",
        "{\"text\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"A\"}]}",
        "{\"instruction\": \"Q\", \"input\": \"\", \"output\": \"A\"}",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct muster_error err = {0};
        const char *found = targets_of(lines[i], (struct data_options){0}, &err);
        if (!found)
            fail_msg("%s", err.text);
        /* "<|im_start|>user/Q<|im_end|>/<|im_start|>assistant/" comes before */
        assert_string_equal(found, "..................................................A<|im_end|>");
    }
    struct muster_error err = {0};
    assert_string_equal(targets_of("{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"completion\": "
                                   "[{\"role\": \"assistant\", \"content\": \"A\"}]}",
                                   (struct data_options){0}, &err),
                        "..................................................A<|im_end|>/");
    assert_null(
        strstr(targets_of("{\"messages\": [{\"role\": \"assistant\", \"content\": \"old\", \"weight\": 0}, "
                          "{\"role\": \"assistant\", \"content\": \"A\"}]}",
                          (struct data_options){0}, &err),
               "old"));
}

static void wrong_records_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, 5]}",
         "c.jsonl:1: turn 2 is no object with role and content, or from and value"},
        {"{\"conversations\": [{\"from\": \"alien\", \"value\": \"Q\"}]}",
         "c.jsonl:1: turn 1: a turn is from 'alien'; known are human, user, gpt"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": 5}]}",
         "c.jsonl:1: turn 1: a turn from 'human' has no text under the key 'value'"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}], \"tools\": \"{\"}",
         "c.jsonl:1: tools is a text that is no JSON"},
        {"{\"question\": \"Q\"}", "no turns of a chat under 'messages' or 'conversations'"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
         "none of the samples has a target that counts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_null(targets_of(cases[i][0], (struct data_options){0}, &err));
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s\nis not\n%s", err.text, cases[i][1]);
    }
}

static void without_a_template_the_way_out_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct chat *chat = chat_open(&(struct chat_options){0}, &err);
    assert_non_null(chat);
    const char *path = put_text("n.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}\n");
    assert_null(data_open(&(struct data_options){.path = path, .positions = 4, .chat = chat}, &err));
    assert_non_null(strstr(err.text, "n.jsonl:1: a chat needs the template of a model"));
    assert_non_null(strstr(err.text, "set data.chat_template to a FILE of Jinja, or to chatml"));
    chat_destroy(chat);
}

/* A chat is a sample of its own, unless a stream is asked for; counts of turns are in notes. */
static void packing_follows_the_chats(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char *path =
        put_text("p.jsonl",
                 "{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": \"c\", \"output\": \"\"}\n");
    for (int packing = DATA_AUTO; packing <= DATA_DOCUMENTS; packing++) {
        scope_buffer notes = {0};
        struct chat *chat = chat_open(&(struct chat_options){.template_name = "chatml"}, &err);
        struct data *data = data_open(&(struct data_options){.path = path,
                                                             .positions = T,
                                                             .chat = chat,
                                                             .notes = &notes,
                                                             .packing = (enum data_packing)packing},
                                      &err);
        if (!data)
            fail_msg("%s", err.text);
        assert_int_equal(data_chats(data), 2);
        assert_int_equal(data_packing(data), packing == DATA_STREAM ? DATA_STREAM : DATA_DOCUMENTS);
        assert_non_null(strstr(notes.data, "1 turns of the assistant have no text"));
        assert_int_equal(strstr(notes.data, "a chat sees the chats in front of it") != NULL,
                         packing == DATA_STREAM);
        data_destroy(data);
        chat_destroy(chat);
    }
}

/* Tokens that give the text back, but for blanks that they put in front. */
static void tokens_are_aligned(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct jinja_span of[8];
    const int32_t ids[] = {'a', ' ', 'b', 0xC3, 0xA9};
    struct tokenizer *bytes = tokenizer_open("bytes", &err);
    assert_true(chats_align(bytes, ids, 5, "a b\xC3\xA9", 5, of));
    assert_int_equal(of[4].from, 4);
    assert_int_equal(of[4].to, 5);
    assert_true(chats_align(bytes, ids, 2, "a \n", 3, of)); /* a token took the end of the line */
    assert_false(chats_align(bytes, ids, 2, "a x", 3, of));
    assert_false(chats_align(bytes, ids, 3, "xyz", 3, of));
    tokenizer_destroy(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_jinja2),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(every_form_masks_the_others),
        cmocka_unit_test(wrong_records_are_named),
        cmocka_unit_test(without_a_template_the_way_out_is_named),
        cmocka_unit_test(packing_follows_the_chats),
        cmocka_unit_test(tokens_are_aligned),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
