/* chat.c - see chat.h: the template of a folder with its special tokens, and the text of a record. */
#include "trainer/chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/chat/chat_internal.h"

enum { TEMPLATE_BYTES = 4 << 20, CONFIG_BYTES = 64 << 20 };

static const char chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ (message['content'] or '') + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ (message['content'] or '') + '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* One template: "default", and "tool_use" for records with tools where the folder has it. */
struct named {
    char *text;
    size_t length;
    struct jinja *compiled;
};

struct chat {
    char *name; /* NULL: no template */
    struct named plain, tools;
    json_t *special;   /* texts of special tokens: {"bos_token": "<s>"} */
    json_t *variables; /* data.chat_template_kwargs; NULL: none */
    int64_t now_s;
    bool all; /* all tokens are trained on */
    uint64_t fingerprint;
    struct jinja_arena arena;
};

static void named_free(struct named *named)
{
    jinja_destroy(named->compiled);
    mem_free(named->text);
}

void chat_destroy(struct chat *chat)
{
    if (!chat)
        return;
    named_free(&chat->plain);
    named_free(&chat->tools);
    json_decref(chat->special);
    json_decref(chat->variables);
    jinja_arena_free(&chat->arena);
    mem_free(chat->name);
    mem_free(chat);
}

const char *chat_name(const struct chat *chat)
{
    return chat->name;
}

uint64_t chat_fingerprint(const struct chat *chat)
{
    return chat->fingerprint;
}

/* ---- the files of a folder ---- */

static int set_template(struct chat *chat, struct named *named, const char *name, const char *text,
                        size_t length, struct muster_error *err)
{
    mem_free(named->text);
    named->text = mem_strndup(text, length);
    named->length = length;
    if (!chat->name)
        chat->name = mem_strdup(name);
    return named->text && chat->name ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a template");
}

/* 1: there is no such file. */
static int read_template_file(struct chat *chat, struct named *named, const char *path, bool needed,
                              struct muster_error *err)
{
    scope_buffer text = {0};
    const int there = needed ? 1 : io_exists(path, err);
    if (there <= 0)
        return there < 0 ? -1 : 1;
    if (io_read_file(path, TEMPLATE_BYTES, &text, err) < 0)
        return -1;
    return set_template(chat, named, path, text.data ? text.data : "", text.length, err);
}

static int take_config_template(struct chat *chat, const char *path, const json_t *config,
                                struct muster_error *err)
{
    const json_t *source = json_object_get(config, "chat_template");
    if (json_is_string(source))
        return set_template(chat, &chat->plain, path, json_string_value(source), json_string_length(source),
                            err);
    for (size_t i = 0; i < json_array_size(source); i++) {
        const json_t *entry = json_array_get(source, i), *text = json_object_get(entry, "template");
        const char *name = json_string_value(json_object_get(entry, "name"));
        struct named *named = !name || !json_is_string(text) ? NULL
                              : !strcmp(name, "default")     ? &chat->plain
                              : !strcmp(name, "tool_use")    ? &chat->tools
                                                             : NULL;
        if (named &&
            set_template(chat, named, path, json_string_value(text), json_string_length(text), err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the special tokens of a file that are not known yet. */
static int take_special(struct chat *chat, const json_t *config, struct muster_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        const size_t length = strlen(key);
        json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (length < 7 || strcmp(key + length - 6, "_token") != 0 || !json_is_string(text) ||
            json_object_get(chat->special, key))
            continue;
        if (json_object_set(chat->special, key, text) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for special tokens");
    }
    return 0;
}

/* A JSON file of the folder; *out NULL: there is none. */
static int read_config(const char *folder, const char *name, char **path, json_t **out,
                       struct muster_error *err)
{
    scope_buffer text = {0};
    *path = mem_printf("%s/%s", folder, name);
    *out = NULL;
    if (!*path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int there = io_exists(*path, err);
    if (there <= 0)
        return there;
    if (io_read_file(*path, CONFIG_BYTES, &text, err) < 0)
        return -1;
    /* model_max_length may be 1e30, in digits */
    *out = json_text_object(*path, text.data ? text.data : "", text.length, JSON_DECODE_INT_AS_REAL, err);
    return *out ? 0 : -1;
}

static int read_tokenizer_folder(struct chat *chat, const char *folder, bool wants_template,
                                 struct muster_error *err)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    scope_free char *own = mem_printf("%s/chat_template.jinja", folder),
                    *tools = mem_printf("%s/additional_chat_templates/tool_use.jinja", folder);
    if (!own || !tools)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (wants_template && (read_template_file(chat, &chat->plain, own, false, err) < 0 ||
                           read_template_file(chat, &chat->tools, tools, false, err) < 0))
        return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        scope_free char *path = NULL;
        json_t *read = NULL;
        if (read_config(folder, files[i], &path, &read, err) < 0)
            return -1;
        GUARD(guard_json) json_t *config = read;
        if (config && i == 0 && wants_template && !chat->plain.text &&
            take_config_template(chat, path, config, err) < 0)
            return -1;
        if (config && take_special(chat, config, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- opening ---- */

static int read_variables(struct chat *chat, const char *text, struct muster_error *err)
{
    if (!text || !*text)
        return 0;
    chat->variables = json_text_object("data.chat_template_kwargs", text, strlen(text), 0, err);
    return chat->variables ? 0 : -1;
}

static int read_date(struct chat *chat, const char *text, struct muster_error *err)
{
    struct tm parts = {0};
    const char *end = strptime(text, "%Y-%m-%d", &parts);
    if (!end || *end)
        return error_set(err, MUSTER_E_INVALID, "data.chat_date '%.40s' is no date: 2024-07-26", text);
    chat->now_s = (int64_t)timegm(&parts);
    return 0;
}

static uint64_t hash_json(uint64_t hash, const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    hash = text ? text_hash(hash, text, strlen(text) + 1) : text_hash(hash, "", 1);
    free(text); /* allocated by jansson, not by mem.h */
    return hash;
}

static void fingerprint(struct chat *chat)
{
    uint64_t hash = text_hash(TEXT_HASH_START, &chat->now_s, sizeof chat->now_s);
    const struct named *both[] = {&chat->plain, &chat->tools};
    for (size_t i = 0; i < 2; i++)
        hash = text_hash(hash, both[i]->text ? both[i]->text : "", both[i]->length + 1);
    hash = hash_json(hash, chat->special);
    hash = hash_json(hash, chat->variables);
    chat->fingerprint = text_hash(hash, &chat->all, sizeof chat->all);
}

struct chat *chat_open(const struct chat_options *o, struct muster_error *err)
{
    const char *wanted = o->template_name && *o->template_name ? o->template_name : CHAT_AUTO;
    const bool by_folder = !strcmp(wanted, CHAT_AUTO);
    GUARD(guard_chat) struct chat *chat = mem_calloc(1, sizeof *chat);
    if (!chat || !(chat->special = json_object())) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a template");
        return NULL;
    }
    if (o->folder && read_tokenizer_folder(chat, o->folder, by_folder, err) < 0)
        return NULL;
    if (!strcmp(wanted, CHAT_CHATML)
            ? set_template(chat, &chat->plain, CHAT_CHATML, chatml, sizeof chatml - 1, err) < 0
            : !by_folder && read_template_file(chat, &chat->plain, wanted, true, err) < 0) {
        (void)error_wrap(err, "data.chat_template");
        return NULL;
    }
    if (read_variables(chat, o->variables, err) < 0 ||
        read_date(chat, o->date ? o->date : CHAT_DATE, err) < 0)
        return NULL;
    chat->all = o->all;
    fingerprint(chat);
    return take_pointer(&chat);
}

/* ---- a record ---- */

static const struct jinja *template_of(struct chat *chat, bool tools, struct muster_error *err)
{
    struct named *named = tools && chat->tools.text ? &chat->tools : &chat->plain;
    if (!named->text) {
        (void)error_set(err, MUSTER_E_NOT_FOUND,
                        "a chat needs the template of a model, and the tokenizer's folder has none "
                        "(chat_template.jinja, or chat_template in tokenizer_config.json): set "
                        "data.chat_template to a FILE of Jinja, or to chatml");
        return NULL;
    }
    if (!named->compiled)
        named->compiled = jinja_compile(chat->name, named->text, named->length, err);
    return named->compiled;
}

static bool set_all(struct jinja_arena *arena, struct jinja_dict *to, const struct jinja_dict *from)
{
    for (size_t i = 0; from && i < from->count; i++)
        if (!jinja_dict_set(arena, to, from->entry[i].key, from->entry[i].value))
            return false;
    return true;
}

/* The variables that transformers gives a template, but for the turns. */
static struct jinja_dict *variables_of(struct chat *chat, const struct record *record)
{
    struct jinja_value special, settings = {.kind = JINJA_NONE};
    struct jinja_arena *arena = &chat->arena;
    struct jinja_dict *all = jinja_dict_create(arena);
    const bool room =
        all && jinja_from_json(arena, chat->special, &special) && set_all(arena, all, special.dict) &&
        (!chat->variables ||
         (jinja_from_json(arena, chat->variables, &settings) && set_all(arena, all, settings.dict))) &&
        set_all(arena, all, record->variables) &&
        jinja_dict_set(arena, all, jinja_string("tools", 5), record->tools) &&
        jinja_dict_set(arena, all, jinja_string("documents", 9), (struct jinja_value){.kind = JINJA_NONE});
    return room ? all : NULL;
}

static int render_record(struct chat *chat, const json_t *json, const char *text_key, struct buffer *out,
                         struct jinja_spans *spans, struct chat_counts *counts, struct muster_error *err)
{
    struct record record;
    struct jinja_spans marked = {0};
    scope_buffer text = {0};
    if (record_read(&chat->arena, json, text_key, &record, err) < 0)
        return -1;
    const struct rendering r = {.source = template_of(chat, record.tools.kind != JINJA_NONE, err),
                                .arena = &chat->arena,
                                .now_s = chat->now_s,
                                .variables = variables_of(chat, &record)};
    if (!r.source)
        return -1;
    if (!r.variables)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a chat");
    const size_t before = spans->count;
    int result = rendering_render(&r, record.turns, record.turns->count, false, &marked, &text, err);
    if (!result && chat->all && text.length)
        result = jinja_spans_add(spans, (struct jinja_span){0, text.length}, err);
    else if (!result)
        result = mask_find(&r, &record, &text, &marked, spans, err);
    mem_free(marked.span);
    if (result < 0)
        return -1;
    for (size_t i = before; i < spans->count; i++) {
        spans->span[i].from += out->length;
        spans->span[i].to += out->length;
    }
    counts->chats++;
    counts->empty += record.empty;
    counts->unasked += spans->count == before;
    return buffer_append(out, text.data, text.length) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a chat")
               : 0;
}

int chat_render(struct chat *chat, const json_t *record, const char *text_key, struct buffer *out,
                struct jinja_spans *spans, struct chat_counts *counts, struct muster_error *err)
{
    chat->arena.limit = 1u << 30;
    const int result = render_record(chat, record, text_key, out, spans, counts, err);
    jinja_arena_free(&chat->arena);
    return result;
}
