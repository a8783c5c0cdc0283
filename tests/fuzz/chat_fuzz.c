/* chat_fuzz.c - arbitrary bytes as a template of Jinja with a fixed chat, and as a record of a chat: a text
 * with spans inside of it and in order, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"
#include "trainer/chat/chat.h"

static void use_text(const struct buffer *text, const struct jinja_spans *spans)
{
    for (size_t i = 0; i < spans->count; i++)
        if (spans->span[i].to > text->length || spans->span[i].from >= spans->span[i].to)
            abort();
}

static void render_template(const char *text, size_t length)
{
    struct muster_error err = {0};
    struct jinja *source = jinja_compile("fuzz", text, length, &err);
    struct jinja_arena arena = {.limit = 8 << 20};
    struct jinja_spans spans = {0};
    struct jinja_value variables;
    scope_buffer out = {0};
    json_t *json =
        json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                   "\"content\": \"b\"}], \"tools\": [{\"name\": \"f\", \"x\": [1, 2.5]}]}",
                   0, NULL);
    if (!source && !err.text[0])
        abort();
    if (!json || !jinja_from_json(&arena, json, &variables))
        abort();
    const struct jinja_input input = {variables.dict, 0, &spans};
    if (source && jinja_render(source, &arena, &input, &out, &err) < 0 && !err.text[0])
        abort();
    use_text(&out, &spans);
    mem_free(spans.span);
    jinja_arena_free(&arena);
    json_decref(json);
    jinja_destroy(source);
}

static void render_record(const char *text, size_t length)
{
    struct muster_error err = {0};
    struct jinja_spans spans = {0};
    struct chat_counts counts = {0};
    scope_buffer out = {0};
    json_t *record = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
    if (!record || !chat_is(record, "text")) {
        json_decref(record);
        return;
    }
    struct chat *chat = chat_open(&(struct chat_options){.template_name = CHAT_CHATML}, &err);
    if (!chat)
        abort();
    if (chat_render(chat, record, "text", &out, &spans, &counts, &err) < 0 && !err.text[0])
        abort();
    use_text(&out, &spans);
    mem_free(spans.span);
    chat_destroy(chat);
    json_decref(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    render_template(text, size);
    render_record(text, size);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char
        loops[] = "{% for m in messages if m.role != 'x' %}{% generation %}{{ m['content'] | upper ~ "
                  "loop.index }}{% endgeneration %}{% endfor %}",
        values[] =
            "{%- set ns = namespace(a=[1, {'k': 'v'}]) -%}{{ tools | tojson(indent=2) }}{% macro m(a, b=2) "
            "%}{{ a[::-1] * b }}{% endmacro %}{{ m('xy') }}{{ ns.a | length // 2 ** 3 % 5 }}",
        texts[] =
            "{{ 'a,b'.split(',') | join('-') }}{% raw %}{{{% endraw %}{{ '%s' % 'a' if 1 < 2 else none }}",
        record[] =
            "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"function_call\", "
            "\"value\": \"{\\\"name\\\": \\\"f\\\"}\"}], \"tools\": \"[]\"}",
        turns[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}, {\"role\": "
                  "\"assistant\", \"content\": \"b\"}]}";
    const struct fuzz_seed seeds[] = {{loops, sizeof loops - 1},
                                      {values, sizeof values - 1},
                                      {texts, sizeof texts - 1},
                                      {record, sizeof record - 1},
                                      {turns, sizeof turns - 1}};
    return fuzz_main(argc, argv, seeds, 5);
}
#endif
