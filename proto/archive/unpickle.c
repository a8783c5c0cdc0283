/* unpickle.c - see unpickle.h. The letters are pickle's operation codes. */
#include "proto/archive/unpickle.h"

#include <stdbool.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

enum { VALUES_LIMIT = 1 << 21, STACK_LIMIT = 1 << 20, MARKS_LIMIT = 256 };

enum global_kind { ORDERED_DICT, REBUILD, REBUILD_TYPED, REBUILD_PARAMETER, SIZE, DEVICE, STORAGE, DTYPE };
static const struct global {
    const char *module, *name;
    enum global_kind kind;
} globals[] = {
    {"collections", "OrderedDict", ORDERED_DICT},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD},
    {"torch._utils", "_rebuild_tensor", REBUILD},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_TYPED},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", REBUILD_PARAMETER},
    {"torch", "Size", SIZE},
    {"torch", "device", DEVICE},
};
enum { GLOBALS = sizeof globals / sizeof *globals };

static const struct unpickle_type types[] = {
    {"FloatStorage", "float32", "F32", 4}, {"DoubleStorage", "float64", "F64", 8},
    {"HalfStorage", "float16", "F16", 2},  {"BFloat16Storage", "bfloat16", "BF16", 2},
    {"LongStorage", "int64", "I64", 8},    {"IntStorage", "int32", "I32", 4},
    {"ShortStorage", "int16", "I16", 2},   {"CharStorage", "int8", "I8", 1},
    {"ByteStorage", "uint8", "U8", 1},     {"BoolStorage", "bool", "BOOL", 1},
    {"UntypedStorage", "uint8", "U8", 1},  {"ComplexFloatStorage", "complex64", "C64", 8},
    {"", "float8_e4m3fn", "F8_E4M3", 1},   {"", "float8_e5m2", "F8_E5M2", 1},
};
enum { TYPES = sizeof types / sizeof *types };

const struct unpickle_type *unpickle_type(int row)
{
    return &types[row];
}

struct reader {
    const char *name;
    const unsigned char *at, *begin, *end;
    struct unpickled *out;
    int *stack, depth, stack_room;
    int marks[MARKS_LIMIT], mark_count;
    int *memo, memo_count; /* -1: nothing */
    struct muster_error *err;
};

static int wrong_pickle(struct reader *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: byte %lld: %s", r->name, (long long)(r->at - r->begin),
                     what);
}

static int unpickle_memory(struct reader *r)
{
    return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
}

/* ---- values and the stack ---- */

static struct unpickled_value *unpickled_at(struct reader *r, int index)
{
    return &r->out->value[index];
}

static int new_value(struct reader *r, struct unpickled_value value)
{
    struct unpickled *out = r->out;
    if (out->count == VALUES_LIMIT)
        return error_set(r->err, MUSTER_E_LIMIT, "%s: more than %d values", r->name, VALUES_LIMIT);
    if (out->count == out->room) {
        const int room = out->room ? 2 * out->room : 1024;
        struct unpickled_value *longer = mem_realloc(out->value, (size_t)room, sizeof *longer);
        if (!longer)
            return unpickle_memory(r);
        out->value = longer;
        out->room = room;
    }
    out->value[out->count] = value;
    return out->count++;
}

static int push_index(struct reader *r, int index)
{
    if (index < 0)
        return -1;
    if (r->depth == STACK_LIMIT)
        return error_set(r->err, MUSTER_E_LIMIT, "%s: more than %d values at once", r->name, STACK_LIMIT);
    if (r->depth == r->stack_room) {
        const int room = r->stack_room ? 2 * r->stack_room : 256;
        int *longer = mem_realloc(r->stack, (size_t)room, sizeof *longer);
        if (!longer)
            return unpickle_memory(r);
        r->stack = longer;
        r->stack_room = room;
    }
    r->stack[r->depth++] = index;
    return 0;
}

static int push_value(struct reader *r, struct unpickled_value value)
{
    return push_index(r, new_value(r, value));
}

static int push_kind(struct reader *r, enum unpickled_kind kind, int64_t number)
{
    return push_value(r, (struct unpickled_value){.kind = kind, .number = number});
}

static int pop_index(struct reader *r, int *index)
{
    const int floor = r->mark_count ? r->marks[r->mark_count - 1] : 0;
    if (r->depth <= floor)
        return wrong_pickle(r, "a value is missing");
    *index = r->stack[--r->depth];
    return 0;
}

static int pop_mark(struct reader *r, int *first)
{
    if (!r->mark_count)
        return wrong_pickle(r, "a mark is missing");
    *first = r->marks[--r->mark_count];
    return 0;
}

static int add_item(struct reader *r, int container, int item)
{
    struct unpickled_value *to = unpickled_at(r, container);
    if (to->count == to->room) {
        const int room = to->room ? 2 * to->room : 4;
        int *longer = mem_realloc(to->items, (size_t)room, sizeof *longer);
        if (!longer)
            return unpickle_memory(r);
        to->items = longer;
        to->room = room;
    }
    to->items[to->count++] = item;
    return 0;
}

/* The stack from first on becomes the items of a value that is on it then. */
static int push_tuple(struct reader *r, int first)
{
    const int tuple = new_value(r, (struct unpickled_value){.kind = UNPICKLED_TUPLE});
    if (tuple < 0)
        return -1;
    for (int i = first; i < r->depth; i++)
        if (add_item(r, tuple, r->stack[i]) < 0)
            return -1;
    r->depth = first;
    return push_index(r, tuple);
}

/* Into the list or dict below first. */
static int append_from(struct reader *r, int first, enum unpickled_kind kind)
{
    const int floor = r->mark_count ? r->marks[r->mark_count - 1] : 0;
    if (first - 1 < floor || unpickled_at(r, r->stack[first - 1])->kind != kind ||
        (kind == UNPICKLED_DICT && (r->depth - first) % 2))
        return wrong_pickle(r, "items without a list or a dict");
    for (int i = first; i < r->depth; i++)
        if (add_item(r, r->stack[first - 1], r->stack[i]) < 0)
            return -1;
    r->depth = first;
    return 0;
}

/* ---- bytes ---- */

static int take_bytes(struct reader *r, uint64_t count, const unsigned char **out)
{
    if (count > (uint64_t)(r->end - r->at))
        return wrong_pickle(r, "it is cut off");
    *out = r->at;
    r->at += count;
    return 0;
}

static int take_little(struct reader *r, int bytes, uint64_t *out)
{
    const unsigned char *at = NULL;
    if (take_bytes(r, (uint64_t)bytes, &at) < 0)
        return -1;
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | at[i];
    return 0;
}

static int push_unsigned(struct reader *r, int bytes)
{
    uint64_t value = 0;
    return take_little(r, bytes, &value) < 0 ? -1 : push_kind(r, UNPICKLED_NUMBER, (int64_t)value);
}

static int push_int32(struct reader *r)
{
    uint64_t value = 0;
    return take_little(r, 4, &value) < 0 ? -1 : push_kind(r, UNPICKLED_NUMBER, (int32_t)(uint32_t)value);
}

/* A whole number of any size; larger ones than 64 bits are of no tensor. */
static int push_long(struct reader *r)
{
    uint64_t bytes = 0, value = 0;
    const unsigned char *at = NULL;
    if (take_little(r, 1, &bytes) < 0 || take_bytes(r, bytes, &at) < 0)
        return -1;
    const bool negative = bytes && at[bytes - 1] & 0x80;
    for (uint64_t i = 0; i < 8; i++)
        value |= (uint64_t)(i < bytes ? at[i] : negative ? 0xff : 0) << (8 * i);
    return push_kind(r, UNPICKLED_NUMBER, bytes > 8 ? 0 : (int64_t)value);
}

static int push_text(struct reader *r, int bytes)
{
    uint64_t length = 0;
    const unsigned char *at = NULL;
    if (take_little(r, bytes, &length) < 0 || take_bytes(r, length, &at) < 0)
        return -1;
    return push_value(r, (struct unpickled_value){
                             .kind = UNPICKLED_TEXT, .text = (const char *)at, .length = (size_t)length});
}

/* ---- globals ---- */

static bool text_equals(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !memcmp(text, word, length);
}

static int push_global(struct reader *r, const char *module, size_t module_length, const char *name,
                       size_t length)
{
    for (int i = 0; i < GLOBALS; i++)
        if (text_equals(module, module_length, globals[i].module) &&
            text_equals(name, length, globals[i].name))
            return push_value(r,
                              (struct unpickled_value){.kind = UNPICKLED_GLOBAL, .number = globals[i].kind});
    const bool of_torch =
        text_equals(module, module_length, "torch") || text_equals(module, module_length, "torch.storage");
    for (int i = 0; of_torch && i < TYPES; i++) {
        const bool storage = *types[i].storage && text_equals(name, length, types[i].storage);
        if (storage || text_equals(name, length, types[i].dtype))
            return push_value(r, (struct unpickled_value){.kind = UNPICKLED_GLOBAL,
                                                          .number = storage ? STORAGE : DTYPE,
                                                          .type = i});
    }
    return error_set(
        r->err, MUSTER_E_UNSUPPORTED,
        "%s: byte %lld: it names %.*s.%.*s, which is no part of a state dict; nothing of it was run. "
        "Save the parameters alone: torch.save(model.state_dict(), path)",
        r->name, (long long)(r->at - r->begin), (int)(module_length < 80 ? module_length : 80), module,
        (int)(length < 80 ? length : 80), name);
}

static int take_global_line(struct reader *r, const char **text, size_t *length)
{
    const unsigned char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (!end)
        return wrong_pickle(r, "it is cut off");
    *text = (const char *)r->at;
    *length = (size_t)(end - r->at);
    r->at = end + 1;
    return 0;
}

static int take_global(struct reader *r)
{
    const char *module = NULL, *name = NULL;
    size_t module_length = 0, length = 0;
    if (take_global_line(r, &module, &module_length) < 0 || take_global_line(r, &name, &length) < 0)
        return -1;
    return push_global(r, module, module_length, name, length);
}

static int take_stack_global(struct reader *r)
{
    int name = 0, module = 0;
    if (pop_index(r, &name) < 0 || pop_index(r, &module) < 0)
        return -1;
    const struct unpickled_value n = *unpickled_at(r, name), m = *unpickled_at(r, module);
    if (n.kind != UNPICKLED_TEXT || m.kind != UNPICKLED_TEXT)
        return wrong_pickle(r, "the name of a global is no text");
    return push_global(r, m.text, m.length, n.text, n.length);
}

/* ---- results of the globals ---- */

/* ("storage", type, key, place, elements) */
static int take_storage(struct reader *r)
{
    int index = 0;
    if (pop_index(r, &index) < 0)
        return -1;
    const struct unpickled_value id = *unpickled_at(r, index);
    if (id.kind != UNPICKLED_TUPLE || id.count < 5)
        return wrong_pickle(r, "the name of a storage is no tuple of five");
    const struct unpickled_value type = *unpickled_at(r, id.items[1]), key = *unpickled_at(r, id.items[2]),
                                 elements = *unpickled_at(r, id.items[4]);
    if (type.kind != UNPICKLED_GLOBAL || type.number != STORAGE || key.kind != UNPICKLED_TEXT ||
        elements.kind != UNPICKLED_NUMBER)
        return wrong_pickle(r, "a storage without type, key or elements");
    return push_value(r, (struct unpickled_value){.kind = UNPICKLED_STORAGE,
                                                  .number = elements.number,
                                                  .type = type.type,
                                                  .text = key.text,
                                                  .length = key.length});
}

static int rebuild_tensor(struct reader *r, struct unpickled_value args, bool typed)
{
    static const enum unpickled_kind kinds[] = {UNPICKLED_STORAGE, UNPICKLED_NUMBER, UNPICKLED_TUPLE,
                                                UNPICKLED_TUPLE};
    for (int i = 0; i < 4; i++)
        if (args.count < (typed ? 7 : 4) || unpickled_at(r, args.items[i])->kind != kinds[i])
            return wrong_pickle(r, "a tensor without storage, offset, sizes or strides");
    int type = unpickled_at(r, args.items[0])->type;
    if (typed) {
        const struct unpickled_value *dtype = unpickled_at(r, args.items[6]);
        if (dtype->kind != UNPICKLED_GLOBAL || dtype->number != DTYPE)
            return wrong_pickle(r, "a tensor without a type");
        type = dtype->type;
    }
    const int tensor = new_value(r, (struct unpickled_value){.kind = UNPICKLED_TENSOR, .type = type});
    for (int i = 0; tensor >= 0 && i < 4; i++)
        if (add_item(r, tensor, args.items[i]) < 0)
            return -1;
    return push_index(r, tensor);
}

static int take_reduce(struct reader *r)
{
    int index = 0, callable = 0;
    if (pop_index(r, &index) < 0 || pop_index(r, &callable) < 0)
        return -1;
    const struct unpickled_value args = *unpickled_at(r, index), global = *unpickled_at(r, callable);
    if (args.kind != UNPICKLED_TUPLE || global.kind != UNPICKLED_GLOBAL)
        return wrong_pickle(r, "a call of something that is no name");
    switch ((enum global_kind)global.number) {
    case ORDERED_DICT:
        return args.count ? wrong_pickle(r, "an OrderedDict of arguments") : push_kind(r, UNPICKLED_DICT, 0);
    case REBUILD:
    case REBUILD_TYPED:
        return rebuild_tensor(r, args, global.number == REBUILD_TYPED);
    case REBUILD_PARAMETER:
    case SIZE:
        return args.count ? push_index(r, args.items[0]) : wrong_pickle(r, "a parameter without a tensor");
    case DEVICE:
    case STORAGE:
    case DTYPE:
        break;
    }
    return push_kind(r, UNPICKLED_NONE, 0);
}

/* The state of an OrderedDict (_metadata) or of a parameter says nothing of values. */
static int take_build(struct reader *r)
{
    int state;
    if (pop_index(r, &state) < 0)
        return -1;
    return r->depth ? 0 : wrong_pickle(r, "a value is missing");
}

/* ---- the memo ---- */

static int put_memo(struct reader *r, uint64_t slot)
{
    if (!r->depth || slot >= VALUES_LIMIT)
        return wrong_pickle(r, "a slot that is too large");
    if ((int)slot >= r->memo_count) {
        const int count = (int)slot + 1 > 2 * r->memo_count ? (int)slot + 1 : 2 * r->memo_count;
        int *longer = mem_realloc(r->memo, (size_t)count, sizeof *longer);
        if (!longer)
            return unpickle_memory(r);
        for (int i = r->memo_count; i < count; i++)
            longer[i] = -1;
        r->memo = longer;
        r->memo_count = count;
    }
    r->memo[slot] = r->stack[r->depth - 1];
    return 0;
}

static int take_put(struct reader *r, int bytes)
{
    uint64_t slot = 0;
    return take_little(r, bytes, &slot) < 0 ? -1 : put_memo(r, slot);
}

static int take_get(struct reader *r, int bytes)
{
    uint64_t slot = 0;
    if (take_little(r, bytes, &slot) < 0)
        return -1;
    if (slot >= (uint64_t)r->memo_count || r->memo[slot] < 0)
        return wrong_pickle(r, "a slot that was not filled");
    return push_index(r, r->memo[slot]);
}

/* ---- all of it ---- */

static int unknown_operation(struct reader *r, unsigned char code)
{
    return error_set(r->err, MUSTER_E_UNSUPPORTED,
                     "%s: byte %lld: operation 0x%02x of pickle, which a state dict has no use for", r->name,
                     (long long)(r->at - r->begin - 1), code);
}

static int take_marked(struct reader *r, unsigned char code)
{
    int first = 0;
    if (pop_mark(r, &first) < 0)
        return -1;
    return code == 't' ? push_tuple(r, first)
                       : append_from(r, first, code == 'u' ? UNPICKLED_DICT : UNPICKLED_TUPLE);
}

static int take_sized_tuple(struct reader *r, int count)
{
    const int floor = r->mark_count ? r->marks[r->mark_count - 1] : 0;
    return r->depth - count < floor ? wrong_pickle(r, "a value is missing") : push_tuple(r, r->depth - count);
}

static int take_single(struct reader *r, unsigned char code)
{
    const int count = code == 's' ? 2 : 1;
    return r->depth < count
               ? wrong_pickle(r, "a value is missing")
               : append_from(r, r->depth - count, code == 's' ? UNPICKLED_DICT : UNPICKLED_TUPLE);
}

static int take_operation(struct reader *r, unsigned char code, int *memoized)
{
    const unsigned char *skipped;
    switch (code) {
    case 0x80: /* PROTO */
        return take_bytes(r, 1, &skipped);
    case 0x95: /* FRAME */
        return take_bytes(r, 8, &skipped);
    case '(':
        if (r->mark_count == MARKS_LIMIT)
            return wrong_pickle(r, "nested too deep");
        r->marks[r->mark_count++] = r->depth;
        return 0;
    case '}':
        return push_kind(r, UNPICKLED_DICT, 0);
    case ']':
    case ')':
        return push_kind(r, UNPICKLED_TUPLE, 0);
    case 't':
    case 'e':
    case 'u':
        return take_marked(r, code);
    case 'a':
    case 's':
        return take_single(r, code);
    case 0x85:
    case 0x86:
    case 0x87:
        return take_sized_tuple(r, code - 0x84);
    case 'N':
        return push_kind(r, UNPICKLED_NONE, 0);
    case 0x88:
    case 0x89:
        return push_kind(r, UNPICKLED_NUMBER, code == 0x88);
    case 'K':
        return push_unsigned(r, 1);
    case 'M':
        return push_unsigned(r, 2);
    case 'J':
        return push_int32(r);
    case 0x8a:
        return push_long(r);
    case 'G': /* a float, which no tensor's description has */
        return take_bytes(r, 8, &skipped) < 0 ? -1 : push_kind(r, UNPICKLED_NUMBER, 0);
    case 'X':
        return push_text(r, 4);
    case 0x8c:
        return push_text(r, 1);
    case 0x8d:
        return push_text(r, 8);
    case 'c':
        return take_global(r);
    case 0x93:
        return take_stack_global(r);
    case 'R':
        return take_reduce(r);
    case 'b':
        return take_build(r);
    case 'Q':
        return take_storage(r);
    case 'q':
        return take_put(r, 1);
    case 'r':
        return take_put(r, 4);
    case 0x94:
        return put_memo(r, (uint64_t)(*memoized)++);
    case 'h':
        return take_get(r, 1);
    case 'j':
        return take_get(r, 4);
    default:
        return unknown_operation(r, code);
    }
}

int unpickle(const char *name, const char *pickle, size_t length, struct unpickled *out, int *root,
             struct muster_error *err)
{
    const unsigned char *begin = (const unsigned char *)pickle;
    struct reader r = {
        .name = name, .at = begin, .begin = begin, .end = begin + length, .out = out, .err = err};
    int memoized = 0, result = 0;
    *out = (struct unpickled){0};
    while (!result) {
        const unsigned char *code = NULL;
        result = take_bytes(&r, 1, &code);
        if (!result && *code == '.') {
            result = pop_index(&r, root);
            break;
        }
        if (!result)
            result = take_operation(&r, *code, &memoized);
    }
    mem_free(r.stack);
    mem_free(r.memo);
    if (result < 0)
        unpickled_free(out);
    return result;
}

void unpickled_free(struct unpickled *unpickled)
{
    for (int i = 0; i < unpickled->count; i++)
        mem_free(unpickled->value[i].items);
    mem_free(unpickled->value);
    *unpickled = (struct unpickled){0};
}
