/* chat_dump.c - the texts of chats and the parts that are trained on, for chat_templates_test.py:
 * chat_dump TEMPLATE VARIABLES reads a record a line, and writes {"text": ..., "spans": [[from, to], ...]} or
 * {"error": ...} for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "trainer/chat/chat.h"

static void print_record(struct chat *chat, const char *line, size_t length)
{
    struct muster_error err = {0};
    struct jinja_spans spans = {0};
    struct chat_counts counts = {0};
    scope_buffer text = {0}, out = {0};
    json_t *record = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
    if (!record || chat_render(chat, record, "text", &text, &spans, &counts, &err) < 0) {
        (void)buffer_text(&out, "{\"error\": ");
        (void)buffer_json_string(&out, record ? err.text : "no JSON");
    } else {
        (void)buffer_text(&out, "{\"text\": ");
        (void)buffer_json_bytes(&out, text.data ? text.data : "", text.length);
        (void)buffer_printf(&out, ", \"empty\": %lld, \"spans\": [", (long long)counts.empty);
        for (size_t i = 0; i < spans.count; i++)
            (void)buffer_printf(&out, "%s[%zu, %zu]", i ? ", " : "", spans.span[i].from, spans.span[i].to);
        (void)buffer_text(&out, "]");
    }
    (void)printf("%s}\n", out.data);
    mem_free(spans.span);
    json_decref(record);
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    if (argc != 3)
        return 2;
    struct chat *chat =
        chat_open(&(struct chat_options){.template_name = argv[1], .variables = argv[2]}, &err);
    if (!chat) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while ((length = getline(&line, &room, stdin)) > 0)
        print_record(chat, line, (size_t)length);
    free(line);
    chat_destroy(chat);
    return 0;
}
