/* unpickle.c - see pictures_internal.h. A stack of values of a few kinds, and a memo; the operations are a
 * switch. A list keeps its length alone; labels are collected as they come.
 *
 * proto/archive/unpickle.c is a second reader of pickles, on purpose: both accept a closed list of globals,
 * and the lists have nothing in common. That reader knows torch's names, and builds a tree of a checkpoint's
 * tensors. This reader knows numpy's names, decodes bytes that Python 3 wrote as latin-1 text, and builds no
 * tree. A common reader would let a checkpoint name numpy's functions, and pictures torch's. */
#include "trainer/pictures/pictures_internal.h"

#include <stdbool.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

enum kind {
    KIND_MARK,
    KIND_OTHER, /* None, a boolean, a float: never read */
    KIND_INT,
    KIND_TEXT, /* text or bytes, in the input */
    KIND_LIST, /* integers: labels in the pool, from `at` on; other items: at -1 */
    KIND_DICT,
    KIND_TUPLE,  /* at most three integers, or opaque */
    KIND_GLOBAL, /* a row of `globals` */
    KIND_TYPE,   /* numpy.dtype('u1') */
    KIND_ARRAY,  /* an array of bytes */
};
enum global {
    GLOBAL_RECONSTRUCT,
    GLOBAL_NDARRAY,
    GLOBAL_DTYPE,
    GLOBAL_FROMBUFFER,
    GLOBAL_ENCODE,
    GLOBAL_BYTES
};

struct value {
    enum kind kind;
    int64_t number;   /* integer or global */
    const char *text; /* text, or bytes of an array */
    size_t length;
    int64_t at, count;        /* list */
    int64_t size[2], sizes;   /* sizes of an array, or integers of a tuple */
    bool bytes_type, fortran; /* type: u1; array: column by column */
};

enum {
    STACK = 1 << 16, /* lists come in pieces of 1,000 */
    MEMO = 1 << 16,
    DECODED = 64, /* most encoded texts: keys, names of types, the pixels */
};

struct reader {
    const unsigned char *text;
    size_t length, at;
    struct value *stack;
    int64_t depth;
    struct value *memo;
    int64_t memos;
    uint8_t *labels; /* pool */
    int64_t pooled, labels_at;
    uint8_t *decoded[DECODED]; /* bytes written as text, see take_encode */
    int decoded_count;
    struct unpickled_batch *batch;
    bool has_data, has_labels;
    struct muster_error *err;
};

static int wrong(struct reader *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "byte %zu: %s; expected is a batch of CIFAR-10 or 100", r->at,
                     what);
}

static int need(struct reader *r, size_t bytes)
{
    return bytes <= r->length - r->at ? 0 : wrong(r, "the file ends too early");
}

static int64_t little(struct reader *r, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)r->text[r->at + (size_t)i] << (8 * i);
    r->at += (size_t)bytes;
    return (int64_t)value;
}

static int unpickle_push(struct reader *r, struct value value)
{
    if (r->depth == STACK)
        return wrong(r, "too many values");
    r->stack[r->depth++] = value;
    return 0;
}

static struct value *top(struct reader *r, int64_t below)
{
    return r->depth > below ? &r->stack[r->depth - 1 - below] : NULL;
}

static int64_t find_mark(struct reader *r)
{
    for (int64_t i = r->depth - 1; i >= 0; i--)
        if (r->stack[i].kind == KIND_MARK)
            return i;
    return -1;
}

static bool is_text(const struct value *v, const char *text)
{
    return v->kind == KIND_TEXT && v->length == strlen(text) && !memcmp(v->text, text, v->length);
}

/* ---- values ---- */

static int push_text(struct reader *r, int size_bytes)
{
    if (need(r, (size_t)size_bytes) < 0)
        return -1;
    const int64_t length = little(r, size_bytes);
    if (length < 0 || need(r, (size_t)length) < 0)
        return length < 0 ? wrong(r, "a text of a negative length") : -1;
    const struct value value = {
        .kind = KIND_TEXT, .text = (const char *)r->text + r->at, .length = (size_t)length};
    r->at += (size_t)length;
    return unpickle_push(r, value);
}

static int push_integer(struct reader *r, int bytes)
{
    if (need(r, (size_t)bytes) < 0)
        return -1;
    int64_t number = little(r, bytes);
    if (bytes == 4)
        number = (int32_t)number;
    return unpickle_push(r, (struct value){.kind = KIND_INT, .number = number});
}

/* LONG1: up to eight bytes of two's complement. */
static int push_long(struct reader *r)
{
    if (need(r, 1) < 0)
        return -1;
    const int bytes = (int)little(r, 1);
    if (bytes > 8 || need(r, (size_t)bytes) < 0)
        return bytes > 8 ? wrong(r, "an integer of more than 64 bits") : -1;
    uint64_t value = (uint64_t)little(r, bytes);
    if (bytes && bytes < 8 && value >> (8 * bytes - 1))
        value |= UINT64_MAX << (8 * bytes);
    return unpickle_push(r, (struct value){.kind = KIND_INT, .number = (int64_t)value});
}

static int push_global(struct reader *r, const char *module, size_t module_length, const char *name,
                       size_t name_length)
{
    static const struct {
        const char *module, *name;
        enum global global;
    } globals[] = {{"numpy.core.multiarray", "_reconstruct", GLOBAL_RECONSTRUCT},
                   {"numpy._core.multiarray", "_reconstruct", GLOBAL_RECONSTRUCT},
                   {"numpy", "ndarray", GLOBAL_NDARRAY},
                   {"numpy", "dtype", GLOBAL_DTYPE},
                   {"numpy.core.numeric", "_frombuffer", GLOBAL_FROMBUFFER},
                   {"numpy._core.numeric", "_frombuffer", GLOBAL_FROMBUFFER},
                   {"_codecs", "encode", GLOBAL_ENCODE},
                   {"__builtin__", "bytes", GLOBAL_BYTES},
                   {"builtins", "bytes", GLOBAL_BYTES}};
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strlen(globals[i].module) == module_length && !memcmp(globals[i].module, module, module_length) &&
            strlen(globals[i].name) == name_length && !memcmp(globals[i].name, name, name_length))
            return unpickle_push(r, (struct value){.kind = KIND_GLOBAL, .number = globals[i].global});
    return error_set(r->err, MUSTER_E_INVALID,
                     "byte %zu: it names %.*s.%.*s, which batches of CIFAR do not; nothing of it is run",
                     r->at, (int)(module_length < 100 ? module_length : 100), module,
                     (int)(name_length < 100 ? name_length : 100), name);
}

/* GLOBAL: two lines. */
static int take_global(struct reader *r)
{
    const char *line[2];
    size_t length[2];
    for (int i = 0; i < 2; i++) {
        const unsigned char *end = memchr(r->text + r->at, '\n', r->length - r->at);
        if (!end)
            return wrong(r, "a name without an end");
        line[i] = (const char *)r->text + r->at;
        length[i] = (size_t)(end - (r->text + r->at));
        r->at += length[i] + 1;
    }
    return push_global(r, line[0], length[0], line[1], length[1]);
}

static int take_stack_global(struct reader *r)
{
    struct value *name = top(r, 0), *module = top(r, 1);
    if (!module || name->kind != KIND_TEXT || module->kind != KIND_TEXT)
        return wrong(r, "a name that is no text");
    r->depth -= 2;
    return push_global(r, module->text, module->length, name->text, name->length);
}

/* ---- collections ---- */

/* Makes the values above a mark a tuple, which keeps its first two integers. */
static int take_tuple(struct reader *r, int64_t first)
{
    struct value tuple = {.kind = KIND_TUPLE, .count = r->depth - first};
    for (int64_t i = first; i < r->depth; i++) {
        struct value *v = &r->stack[i];
        if (v->kind == KIND_MARK)
            return wrong(r, "a mark inside of a tuple");
        if (v->kind == KIND_INT && tuple.sizes == i - first && tuple.sizes < 2)
            tuple.size[tuple.sizes++] = v->number;
        /* an array's state: (version, shape, type, order, bytes); texts for _reconstruct and types */
        if (v->kind == KIND_TEXT && !tuple.text) {
            tuple.text = v->text;
            tuple.length = v->length;
        }
        if (v->kind == KIND_TYPE)
            tuple.bytes_type = v->bytes_type;
        if (v->kind == KIND_TUPLE && v->sizes == v->count && v->count == 2) {
            tuple.at = 2; /* the tuple has a shape */
            memcpy(tuple.size, v->size, sizeof tuple.size);
        }
        if (v->kind == KIND_OTHER)
            tuple.fortran |= v->number == 1;
    }
    r->depth = first;
    return unpickle_push(r, tuple);
}

static int unpickle_append(struct reader *r, struct value *list, const struct value *item)
{
    if (list->kind != KIND_LIST)
        return wrong(r, "something is appended to a value that is no list");
    if (item->kind != KIND_INT || list->at < 0) { /* names of files */
        list->at = list->count && list->at >= 0 ? list->at : -1;
        list->count++;
        return 0;
    }
    if (list->count == 0)
        list->at = r->pooled;
    if (r->pooled == UNPICKLE_PICTURES || list->at + list->count != r->pooled)
        return wrong(r, "more labels than a batch may have");
    if (item->number < 0 || item->number > UINT8_MAX)
        return wrong(r, "a label that is not 0 to 255");
    r->labels[r->pooled++] = (uint8_t)item->number;
    list->count++;
    return 0;
}

static int take_appends(struct reader *r)
{
    const int64_t mark = find_mark(r);
    if (mark < 1)
        return wrong(r, "a list without a beginning");
    for (int64_t i = mark + 1; i < r->depth; i++)
        if (unpickle_append(r, &r->stack[mark - 1], &r->stack[i]) < 0)
            return -1;
    r->depth = mark;
    return 0;
}

static int set_item(struct reader *r, const struct value *key, const struct value *item)
{
    if (is_text(key, "data")) {
        if (item->kind != KIND_ARRAY || !item->text)
            return wrong(r, "data is no array of bytes");
        r->batch->data = (const uint8_t *)item->text;
        r->batch->rows = item->size[0];
        r->batch->columns = item->size[1];
        r->has_data = true;
    } else if (is_text(key, "labels") || is_text(key, "fine_labels")) {
        if (item->kind != KIND_LIST || (item->count && item->at < 0))
            return wrong(r, "labels is no list of integers");
        r->batch->labels = item->count;
        r->batch->fine = is_text(key, "fine_labels");
        r->labels_at = item->count ? item->at : 0;
        r->has_labels = true;
    }
    return 0;
}

static int take_items(struct reader *r, int64_t first)
{
    if (first < 1 || (r->depth - first) % 2 ||
        (r->stack[first - 1].kind != KIND_DICT && r->stack[first - 1].kind != KIND_MARK))
        return wrong(r, "items without a dict");
    for (int64_t i = first; i < r->depth; i += 2)
        if (set_item(r, &r->stack[i], &r->stack[i + 1]) < 0)
            return -1;
    return 0;
}

/* ---- objects ---- */

/* Python 3 writes bytes at protocol 2 as text whose characters are the bytes, and encode(text, "latin1"). */
static int take_encode(struct reader *r, const struct value *arguments, struct value *made)
{
    if (arguments->count != 2 || !arguments->text)
        return wrong(r, "encode without a text");
    if (r->decoded_count == DECODED)
        return wrong(r, "more encoded texts than a batch has");
    uint8_t *out = mem_calloc(arguments->length + 1, 1);
    if (!out)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory for %zu bytes of a batch", arguments->length);
    r->decoded[r->decoded_count++] = out;
    size_t length = 0;
    for (size_t i = 0; i < arguments->length; i++) {
        const unsigned char c = (unsigned char)arguments->text[i],
                            next = i + 1 < arguments->length ? (unsigned char)arguments->text[i + 1] : 0;
        if (c >= 0x80 && !((c == 0xC2 || c == 0xC3) && next >= 0x80 && next <= 0xBF))
            return wrong(r, "a text to encode has a character that is no byte");
        out[length++] = c < 0x80 ? c : (uint8_t)((c & 3) << 6 | (next & 0x3F));
        i += c >= 0x80;
    }
    *made = (struct value){.kind = KIND_TEXT, .text = (const char *)out, .length = length};
    return 0;
}

static int take_reduce(struct reader *r)
{
    const struct value *arguments = top(r, 0), *global = top(r, 1);
    struct value made = {0};
    if (!global || global->kind != KIND_GLOBAL || arguments->kind != KIND_TUPLE)
        return wrong(r, "a call of something that is no array or type");
    if (global->number == GLOBAL_RECONSTRUCT) {
        made.kind = KIND_ARRAY;
    } else if (global->number == GLOBAL_DTYPE) {
        made.kind = KIND_TYPE;
        made.bytes_type = arguments->text && arguments->length == 2 && !memcmp(arguments->text, "u1", 2);
    } else if (global->number == GLOBAL_ENCODE) {
        if (take_encode(r, arguments, &made) < 0)
            return -1;
    } else if (global->number == GLOBAL_BYTES && arguments->count == 0) {
        made = (struct value){.kind = KIND_TEXT, .text = ""};
    } else if (global->number == GLOBAL_FROMBUFFER) { /* (bytes, type, shape, order) */
        if (!arguments->bytes_type || arguments->at != 2)
            return wrong(r, "an array that is not of two dimensions of bytes");
        made = *arguments;
        made.kind = KIND_ARRAY;
        if (made.size[0] < 0 || made.size[1] < 1 || made.size[0] > UNPICKLE_PICTURES ||
            made.size[1] > (int64_t)made.length || made.size[0] * made.size[1] != (int64_t)made.length)
            return wrong(r, "an array of another size than its bytes");
    } else {
        return wrong(r, "a call of something that is no array or type");
    }
    r->depth -= 2;
    return unpickle_push(r, made);
}

/* Sets an array's state, (1, shape, type, fortran, bytes). A type's state has nothing new. */
static int take_build(struct reader *r)
{
    const struct value *state = top(r, 0);
    struct value *object = top(r, 1);
    if (!object || state->kind != KIND_TUPLE || (object->kind != KIND_ARRAY && object->kind != KIND_TYPE))
        return wrong(r, "the state of something that is no array or type");
    if (object->kind == KIND_ARRAY) {
        if (!state->bytes_type || state->at != 2 || !state->text || state->fortran)
            return wrong(r, "an array that is not of two dimensions of bytes, row by row");
        object->text = state->text;
        object->length = state->length;
        memcpy(object->size, state->size, sizeof object->size);
        if (object->size[0] < 0 || object->size[1] < 1 || object->size[0] > UNPICKLE_PICTURES ||
            object->size[1] > (int64_t)object->length ||
            object->size[0] * object->size[1] != (int64_t)object->length)
            return wrong(r, "an array of another size than its bytes");
    }
    r->depth--;
    return 0;
}

/* ---- the memo ---- */

static int unpickle_put(struct reader *r, int64_t index)
{
    const struct value *v = top(r, 0);
    if (!v || index < 0 || index >= MEMO)
        return index >= MEMO ? 0 : wrong(r, "nothing to remember"); /* names of pictures are never read */
    r->memo[index] = *v;
    r->memos = index >= r->memos ? index + 1 : r->memos;
    return 0;
}

static int get(struct reader *r, int64_t index)
{
    if (index < 0 || index >= r->memos || r->memo[index].kind == KIND_LIST)
        return wrong(r, "a value that was not remembered");
    return unpickle_push(r, r->memo[index]);
}

static int with_number(struct reader *r, int bytes, int (*act)(struct reader *r, int64_t number))
{
    return need(r, (size_t)bytes) < 0 ? -1 : act(r, little(r, bytes));
}

static int skip(struct reader *r, int64_t bytes)
{
    (void)r, (void)bytes; /* a frame's size: its content follows */
    return 0;
}

/* ---- operations ---- */

static int take_pop_values(struct reader *r, int count)
{
    return r->depth < count ? wrong(r, "a tuple without values") : take_tuple(r, r->depth - count);
}

static int take_marked_tuple(struct reader *r)
{
    const int64_t mark = find_mark(r);
    if (mark < 0)
        return wrong(r, "a tuple without a beginning");
    if (take_tuple(r, mark + 1) < 0)
        return -1;
    r->stack[mark] = r->stack[mark + 1];
    r->depth = mark + 1;
    return 0;
}

static int take_set_items(struct reader *r, bool several)
{
    const int64_t first = several ? find_mark(r) + 1 : r->depth - 2;
    if (take_items(r, first) < 0)
        return -1;
    r->depth = several ? first - 1 : first;
    return 0;
}

static int take_append(struct reader *r)
{
    if (r->depth < 2 || unpickle_append(r, top(r, 1), top(r, 0)) < 0)
        return r->depth < 2 ? wrong(r, "something is appended to nothing") : -1;
    r->depth--;
    return 0;
}

static int push_kind(struct reader *r, enum kind kind, int64_t number)
{
    return unpickle_push(r, (struct value){.kind = kind, .number = number});
}

/* pickle's letters: pickletools.py of Python. */
static int operation(struct reader *r, unsigned char code)
{
    switch (code) {
    case 0x80:
        return with_number(r, 1, skip); /* PROTO */
    case 0x95:
        return with_number(r, 8, skip); /* FRAME */
    case '(':
        return push_kind(r, KIND_MARK, 0);
    case '}':
        return push_kind(r, KIND_DICT, 0);
    case ']':
        return push_kind(r, KIND_LIST, 0);
    case ')':
        return push_kind(r, KIND_TUPLE, 0);
    case 'N':
        return push_kind(r, KIND_OTHER, 0);
    case 0x88:
        return push_kind(r, KIND_OTHER, 1); /* True */
    case 0x89:
        return push_kind(r, KIND_OTHER, 0); /* False */
    case 'K':
        return push_integer(r, 1);
    case 'M':
        return push_integer(r, 2);
    case 'J':
        return push_integer(r, 4);
    case 0x8a:
        return push_long(r);
    case 'U':
    case 'C':
    case 0x8c:
        return push_text(r, 1); /* text of Python 2, bytes, text */
    case 'T':
    case 'B':
    case 'X':
        return push_text(r, 4);
    case 0x8d:
    case 0x8e:
    case 0x96:
        return push_text(r, 8); /* text, bytes, a byte array */
    case 'c':
        return take_global(r);
    case 0x93:
        return take_stack_global(r);
    case 'a':
        return take_append(r);
    case 'e':
        return take_appends(r);
    case 's':
        return take_set_items(r, false);
    case 'u':
        return take_set_items(r, true);
    case 't':
        return take_marked_tuple(r);
    case 0x85:
        return take_pop_values(r, 1);
    case 0x86:
        return take_pop_values(r, 2);
    case 0x87:
        return take_pop_values(r, 3);
    case 'R':
        return take_reduce(r);
    case 'b':
        return take_build(r);
    case 'q':
        return with_number(r, 1, unpickle_put);
    case 'r':
        return with_number(r, 4, unpickle_put);
    case 0x94:
        return unpickle_put(r, r->memos < MEMO ? r->memos : MEMO); /* MEMOIZE */
    case 'h':
        return with_number(r, 1, get);
    case 'j':
        return with_number(r, 4, get);
    default:
        return error_set(r->err, MUSTER_E_INVALID,
                         "byte %zu: pickle's operation 0x%02x, which batches of CIFAR do not have", r->at - 1,
                         code);
    }
}

static int read_all(struct reader *r)
{
    while (r->at < r->length) {
        const unsigned char code = r->text[r->at++];
        if (code == '.')
            return r->has_data && r->has_labels ? 0 : wrong(r, "there is no data, or no labels");
        if (operation(r, code) < 0)
            return -1;
    }
    return wrong(r, "the file ends too early");
}

int unpickle_batch(const char *text, size_t length, struct unpickled_batch *batch, uint8_t *labels_out,
                   struct muster_error *err)
{
    struct reader r = {.text = (const unsigned char *)text,
                       .length = length,
                       .labels = labels_out,
                       .batch = batch,
                       .err = err};
    *batch = (struct unpickled_batch){0};
    r.stack = mem_calloc(STACK, sizeof *r.stack);
    r.memo = mem_calloc(MEMO, sizeof *r.memo);
    int result = r.stack && r.memo ? read_all(&r) : error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    if (!result)
        memmove(labels_out, labels_out + r.labels_at, (size_t)batch->labels);
    for (int i = 0; i < r.decoded_count; i++) {
        if (!result && batch->data == r.decoded[i])
            batch->owned = r.decoded[i];
        else
            mem_free(r.decoded[i]);
    }
    mem_free(r.stack);
    mem_free(r.memo);
    return result;
}
