/* record.c - the turns of a record, in all forms in which data sets have them. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/json/json_text.h"
#include "trainer/chat/chat_internal.h"

static int record_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a chat");
}

static bool is_turn(const json_t *turn)
{
    return (json_is_string(json_object_get(turn, "role")) || json_is_string(json_object_get(turn, "from")));
}

static const json_t *turns_under(const json_t *record, const char *key)
{
    const json_t *turns = json_object_get(record, key);
    return is_turn(json_array_get(turns, 0)) ? turns : NULL;
}

/* The list of turns; NULL: the record has another form. */
static const json_t *find_turns(const json_t *record, const char *text_key)
{
    static const char *const keys[] = {"messages", "conversations", "conversation", NULL};
    const json_t *turns = turns_under(record, text_key);
    for (int i = 0; !turns && keys[i]; i++)
        turns = turns_under(record, keys[i]);
    return turns;
}

static bool is_alpaca(const json_t *record)
{
    return json_is_string(json_object_get(record, "instruction")) &&
           json_is_string(json_object_get(record, "output"));
}

bool chat_is(const json_t *record, const char *text_key)
{
    return find_turns(record, text_key) || is_alpaca(record) ||
           (turns_under(record, "prompt") && turns_under(record, "completion"));
}

/* ---- a turn ---- */

/* Roles of ShareGPT, and their names in templates. */
static const char *role_named(const char *from)
{
    static const struct {
        const char *from, *role;
    } roles[] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                 {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
                 {"model", "assistant"},     {"bot", "assistant"},     {"system", "system"},
                 {"tool", "tool"},           {"observation", "tool"},  {"function_response", "tool"},
                 {"function_call", "call"},  {"function", "call"},     {"developer", "developer"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(from, roles[i].from))
            return roles[i].role;
    return NULL;
}

static bool add_key(struct jinja_arena *arena, struct jinja_dict *dict, const char *key,
                    struct jinja_value value)
{
    return jinja_dict_set(arena, dict, jinja_string(key, strlen(key)), value);
}

/* {"name": ..., "arguments": ...} of a function call, or a list of these, as tool_calls. */
static int add_calls(struct jinja_arena *arena, struct jinja_dict *turn, const json_t *value,
                     struct muster_error *err)
{
    struct jinja_value parsed;
    json_t *json = json_loadb(json_string_value(value), json_string_length(value), 0, NULL);
    struct jinja_list *calls = jinja_list_create(arena);
    const size_t count = json_is_array(json) ? json_array_size(json) : 1;
    bool room = calls != NULL;
    if (!json_is_array(json) && !json_is_object(json)) {
        json_decref(json);
        return error_set(err, MUSTER_E_INVALID,
                         "a function_call whose value is no JSON object with name and arguments");
    }
    for (size_t i = 0; room && i < count; i++) {
        const json_t *call = json_is_array(json) ? json_array_get(json, i) : json;
        struct jinja_dict *one = jinja_dict_create(arena);
        room = one && jinja_from_json_copied(arena, call, &parsed) &&
               add_key(arena, one, "type", jinja_string("function", 8)) &&
               add_key(arena, one, "function", parsed) &&
               jinja_list_add(arena, calls, (struct jinja_value){.kind = JINJA_DICT, .dict = one});
    }
    json_decref(json);
    return room && add_key(arena, turn, "content", (struct jinja_value){.kind = JINJA_NONE}) &&
                   add_key(arena, turn, "tool_calls", (struct jinja_value){.kind = JINJA_LIST, .list = calls})
               ? 0
               : record_no_memory(err);
}

/* Reads a turn of ShareGPT as role and content. */
static int read_sharegpt(struct jinja_arena *arena, const json_t *json, struct jinja_value *out,
                         struct muster_error *err)
{
    const char *from = json_string_value(json_object_get(json, "from")), *role = role_named(from);
    const json_t *value = json_object_get(json, "value");
    struct jinja_dict *turn = jinja_dict_create(arena);
    struct jinja_value content = jinja_string("", 0);
    if (!turn)
        return record_no_memory(err);
    *out = (struct jinja_value){.kind = JINJA_DICT, .dict = turn};
    if (!role)
        return error_set(err, MUSTER_E_INVALID,
                         "a turn is from '%.40s'; known are human, user, gpt, assistant, system, tool, "
                         "observation and function_call",
                         from);
    const bool call = !strcmp(role, "call");
    role = call ? "assistant" : role;
    if (!json_is_string(value))
        return error_set(err, MUSTER_E_INVALID, "a turn from '%.40s' has no text under the key 'value'",
                         from);
    if (!add_key(arena, turn, "role", jinja_string(role, strlen(role))))
        return record_no_memory(err);
    if (call)
        return add_calls(arena, turn, value, err);
    return jinja_from_json(arena, value, &content) && add_key(arena, turn, "content", content)
               ? 0
               : record_no_memory(err);
}

static bool text_is(const struct jinja_value *value, const char *text)
{
    return value && value->kind == JINJA_STRING && value->text.length == strlen(text) &&
           !memcmp(value->text.data, text, value->text.length);
}

/* Whether a turn of the assistant says nothing. */
static bool is_empty_turn(const struct jinja_dict *turn)
{
    static const char *const says[] = {"content", "tool_calls", "reasoning_content", "thinking", NULL};
    for (int i = 0; says[i]; i++) {
        const struct jinja_value *value = jinja_dict_find(turn, says[i]);
        if (value && value->kind != JINJA_NONE && (value->kind != JINJA_STRING || value->text.length) &&
            (value->kind != JINJA_LIST || value->list->count))
            return false;
    }
    return true;
}

static bool is_left_out(const json_t *turn)
{
    const json_t *weight = json_object_get(turn, "weight"), *train = json_object_get(turn, "train");
    return (json_is_number(weight) && !(json_number_value(weight) > 0)) || json_is_false(train);
}

static int add_turn(struct jinja_arena *arena, const json_t *json, struct record *out,
                    struct muster_error *err)
{
    struct jinja_value turn = {.kind = JINJA_NONE};
    const size_t at = out->turns->count;
    if (at >= RECORD_TURNS)
        return error_set(err, MUSTER_E_LIMIT, "a chat of more than %d turns", RECORD_TURNS);
    if (!is_turn(json))
        return error_set(err, MUSTER_E_INVALID,
                         "turn %zu is no object with role and content, or from and value", at + 1);
    const bool sharegpt = !json_is_string(json_object_get(json, "role"));
    if (sharegpt && read_sharegpt(arena, json, &turn, err) < 0)
        return error_wrap(err, "turn %zu", at + 1);
    if ((!sharegpt && !jinja_from_json(arena, json, &turn)) || !jinja_list_add(arena, out->turns, turn))
        return record_no_memory(err);
    const bool assistant = text_is(jinja_dict_find(turn.dict, "role"), "assistant");
    out->trained[at] = assistant && !is_left_out(json);
    out->empty += assistant && is_empty_turn(turn.dict);
    return 0;
}

static int add_turns(struct jinja_arena *arena, const json_t *turns, struct record *out,
                     struct muster_error *err)
{
    for (size_t i = 0; i < json_array_size(turns); i++)
        if (add_turn(arena, json_array_get(turns, i), out, err) < 0)
            return -1;
    return 0;
}

/* A turn with a text. */
static int add_text_turn(struct jinja_arena *arena, struct record *out, const char *role, const json_t *text,
                         const json_t *more, struct muster_error *err)
{
    struct jinja_dict *turn = jinja_dict_create(arena);
    struct jinja_value content;
    const size_t at = out->turns->count, length = json_string_length(text), rest = json_string_length(more);
    if (at >= RECORD_TURNS)
        return error_set(err, MUSTER_E_LIMIT, "a chat of more than %d turns", RECORD_TURNS);
    char *joined = rest ? jinja_arena_take(arena, length + 1 + rest) : NULL;
    if (joined) {
        memcpy(joined, json_string_value(text), length);
        joined[length] = '\n';
        memcpy(joined + length + 1, json_string_value(more), rest);
    }
    content =
        joined ? jinja_string(joined, length + 1 + rest) : jinja_string(json_string_value(text), length);
    if ((rest && !joined) || !turn || !add_key(arena, turn, "role", jinja_string(role, strlen(role))) ||
        !add_key(arena, turn, "content", content) ||
        !jinja_list_add(arena, out->turns, (struct jinja_value){.kind = JINJA_DICT, .dict = turn}))
        return record_no_memory(err);
    out->trained[at] = !strcmp(role, "assistant");
    out->empty += out->trained[at] && is_empty_turn(turn);
    return 0;
}

/* instruction, input and output, after the pairs of history. */
static int add_alpaca(struct jinja_arena *arena, const json_t *json, struct record *out,
                      struct muster_error *err)
{
    const json_t *history = json_object_get(json, "history");
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *pair = json_array_get(history, i);
        for (size_t k = 0; k < 2; k++) {
            const json_t *text = json_array_get(pair, k);
            if (!json_is_string(text))
                return error_set(err, MUSTER_E_INVALID, "history %zu is no pair of texts", i + 1);
            if (add_text_turn(arena, out, k ? "assistant" : "user", text, NULL, err) < 0)
                return -1;
        }
    }
    const json_t *input = json_object_get(json, "input");
    return add_text_turn(arena, out, "user", json_object_get(json, "instruction"),
                         json_is_string(input) ? input : NULL, err) < 0
               ? -1
               : add_text_turn(arena, out, "assistant", json_object_get(json, "output"), NULL, err);
}

/* A value that is JSON, or a text of JSON. */
static int read_json_value(struct jinja_arena *arena, const json_t *record, const char *key,
                           struct jinja_value *out, struct muster_error *err)
{
    const json_t *json = json_object_get(record, key);
    *out = (struct jinja_value){.kind = JINJA_NONE};
    if (!json || json_is_null(json) || (json_is_string(json) && !json_string_length(json)))
        return 0;
    if (!json_is_string(json))
        return jinja_from_json(arena, json, out) ? 0 : record_no_memory(err);
    GUARD(guard_json)
    json_t *parsed = json_loadb(json_string_value(json), json_string_length(json), 0, NULL);
    if (!parsed)
        return error_set(err, MUSTER_E_INVALID, "%s is a text that is no JSON", key);
    return jinja_from_json_copied(arena, parsed, out) ? 0 : record_no_memory(err);
}

static int read_extras(struct jinja_arena *arena, const json_t *json, struct record *out,
                       struct muster_error *err)
{
    struct jinja_value variables;
    if (read_json_value(arena, json, "tools", &out->tools, err) < 0 ||
        read_json_value(arena, json, "chat_template_kwargs", &variables, err) < 0)
        return -1;
    if (out->tools.kind == JINJA_LIST && !out->tools.list->count)
        out->tools = (struct jinja_value){.kind = JINJA_NONE};
    if (out->tools.kind != JINJA_LIST && out->tools.kind != JINJA_NONE)
        return error_set(err, MUSTER_E_INVALID, "tools is no list");
    if (variables.kind != JINJA_DICT && variables.kind != JINJA_NONE)
        return error_set(err, MUSTER_E_INVALID, "chat_template_kwargs is no object");
    out->variables = variables.kind == JINJA_DICT ? variables.dict : NULL;
    return 0;
}

int record_read(struct jinja_arena *arena, const json_t *json, const char *text_key, struct record *out,
                struct muster_error *err)
{
    const json_t *turns = find_turns(json, text_key), *system = json_object_get(json, "system");
    *out = (struct record){.turns = jinja_list_create(arena),
                           .trained = jinja_arena_take(arena, RECORD_TURNS * sizeof *out->trained),
                           .prompt = SIZE_MAX};
    if (!out->turns || !out->trained)
        return record_no_memory(err);
    if (read_extras(arena, json, out, err) < 0)
        return -1;
    if (json_is_string(system) && json_string_length(system) &&
        add_text_turn(arena, out, "system", system, NULL, err) < 0)
        return -1;
    if (turns)
        return add_turns(arena, turns, out, err);
    if (is_alpaca(json))
        return add_alpaca(arena, json, out, err);
    if (add_turns(arena, json_object_get(json, "prompt"), out, err) < 0)
        return -1;
    out->prompt = out->turns->count;
    return add_turns(arena, json_object_get(json, "completion"), out, err);
}
