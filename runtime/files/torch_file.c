/* torch_file.c - see files_internal.h. */
#include "runtime/files/files_internal.h"

#include <stdio.h>
#include <string.h>

#include "proto/archive/unpickle.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { PICKLE_LIMIT = 32 << 20, NAME_LIMIT = 512 };

struct torch_reader {
    const struct zip_source *source;
    struct zip zip;
    char root[NAME_LIMIT]; /* "model/": prefix of the members' names */
    struct unpickled values;
    int file;
    struct file_tensors *tensors;
    struct muster_error *err;
};

/* ---- files of other kinds ---- */

bool torch_file_begins(const void *start, size_t bytes)
{
    return bytes >= 4 && !memcmp(start, "PK\3\4", 4);
}

int torch_file_refuse(const char *name, const void *start, size_t bytes, struct muster_error *err)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *text;
    } kinds[] = {
        {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14,
         "a file of torch.save before PyTorch 1.6, or with _use_new_zipfile_serialization=False: write it "
         "again, "
         "torch.save(torch.load(path, weights_only=True), path)"},
        {"\x80\x02", 2,
         "a pickle, which is not read: save the parameters with torch.save(model.state_dict(), path)"},
        {"\x80\x03", 2,
         "a pickle, which is not read: save the parameters with torch.save(model.state_dict(), path)"},
        {"\x80\x04", 2,
         "a pickle, which is not read: save the parameters with torch.save(model.state_dict(), path)"},
        {"GGUF", 4, "a GGUF file, which is not read: take the model's folder of Hugging Face"},
        {"\x89HDF\r\n", 6,
         "an HDF5 file, which is not read: save the parameters with safetensors or torch.save"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (bytes >= kinds[i].length && !memcmp(start, kinds[i].bytes, kinds[i].length))
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s is %s", name, kinds[i].text);
    return 0;
}

/* ---- members ---- */

static const struct zip_member *member_named(const struct torch_reader *r, const char *name, size_t length)
{
    const size_t before = strlen(r->root);
    for (int i = 0; i < r->zip.count; i++) {
        const char *known = r->zip.member[i].name;
        if (!strncmp(known, r->root, before) && strlen(known) == before + length &&
            !memcmp(known + before, name, length))
            return &r->zip.member[i];
    }
    return NULL;
}

static int refuse_packed(const struct torch_reader *r, const struct zip_member *member)
{
    return error_set(
        r->err, MUSTER_E_UNSUPPORTED,
        "%s: member %.100s is compressed or encrypted, and torch.save stores members as they are",
        r->source->name, member->name);
}

/* The pickle is in a folder of any name. */
static int find_root(struct torch_reader *r)
{
    static const char pickle[] = "/data.pkl", numpy[] = ".npy";
    bool of_numpy = false, of_script = false;
    for (int i = 0; i < r->zip.count; i++) {
        const char *name = r->zip.member[i].name;
        const size_t length = strlen(name), folder = length - (sizeof pickle - 1);
        of_numpy |= length >= sizeof numpy && !strcmp(name + length - (sizeof numpy - 1), numpy);
        of_script |= strstr(name, "/constants.pkl") != NULL;
        if (length >= sizeof pickle - 1 && folder + 2 <= sizeof r->root && !strcmp(name + folder, pickle) &&
            !*r->root)
            (void)snprintf(r->root, sizeof r->root, "%.*s/", (int)folder, name); /* fits */
    }
    if (of_script)
        return error_set(
            r->err, MUSTER_E_UNSUPPORTED,
            "%s is a program of TorchScript: save the parameters, torch.save(model.state_dict(), path)",
            r->source->name);
    if (*r->root)
        return 0;
    return error_set(r->err, MUSTER_E_UNSUPPORTED,
                     "%s is %s: save the parameters with torch.save(model.state_dict(), path)",
                     r->source->name,
                     of_numpy ? "an archive of numpy" : "an archive that torch.save did not write");
}

static int read_member(struct torch_reader *r, const char *name, struct buffer *out)
{
    const struct zip_member *member = member_named(r, name, strlen(name));
    if (!member)
        return 0;
    if (member->packed)
        return refuse_packed(r, member);
    if (member->bytes > PICKLE_LIMIT)
        return error_set(r->err, MUSTER_E_LIMIT, "%s: member %s has %lld bytes; at most %d are read",
                         r->source->name, name, (long long)member->bytes, PICKLE_LIMIT);
    scope_free char *text = mem_calloc((size_t)member->bytes + 1, 1);
    if (!text)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->source->name);
    if (r->source->read(r->source->context, member->data, text, (size_t)member->bytes, r->err) < 0)
        return -1;
    return buffer_append(out, text, (size_t)member->bytes) < 0
               ? error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->source->name)
               : 0;
}

static int check_byte_order(struct torch_reader *r)
{
    scope_buffer order = {0};
    if (read_member(r, "byteorder", &order) < 0)
        return -1;
    return !order.data || !strcmp(order.data, "little")
               ? 0
               : error_set(r->err, MUSTER_E_UNSUPPORTED,
                           "%s: its bytes are in %.20s endian order, and little is read", r->source->name,
                           order.data);
}

/* ---- one tensor ---- */

static const struct unpickled_value *torch_value(const struct torch_reader *r, int index)
{
    return &r->values.value[index];
}

static int refuse_tensor(struct torch_reader *r, const struct file_tensor *tensor, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: tensor '%s' %s", r->source->name, tensor->name, what);
}

/* Sizes and strides of a tensor. *span: the number of elements from its first to its last. */
static int take_shape(struct torch_reader *r, const struct unpickled_value *value, struct file_tensor *tensor,
                      int64_t *span)
{
    const struct unpickled_value *sizes = torch_value(r, value->items[2]),
                                 *strides = torch_value(r, value->items[3]);
    int64_t whole = 1;
    if (sizes->count != strides->count || sizes->count > TENSOR_DIMS)
        return refuse_tensor(r, tensor, "has no shape, or too many dimensions");
    tensor->ndim = sizes->count;
    *span = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        const struct unpickled_value *size = torch_value(r, sizes->items[i]),
                                     *stride = torch_value(r, strides->items[i]);
        int64_t reach;
        if (size->kind != UNPICKLED_NUMBER || stride->kind != UNPICKLED_NUMBER || size->number < 0 ||
            stride->number < 0)
            return refuse_tensor(r, tensor, "has a size or a stride that is none");
        tensor->dim[i] = size->number;
        tensor->stride[i] = stride->number;
        tensor->strided |= size->number > 1 && stride->number != whole;
        if (__builtin_mul_overflow(size->number > 0 ? size->number - 1 : 0, stride->number, &reach) ||
            __builtin_add_overflow(*span, reach, span))
            return refuse_tensor(r, tensor, "has a shape that is too large");
        whole *= size->number > 0 ? size->number : 1;
        if (tensor_elements(tensor->ndim - i, tensor->dim + i) < 0)
            return refuse_tensor(r, tensor, "has a shape that is too large");
    }
    if (!tensor_elements(tensor->ndim, tensor->dim))
        *span = 0;
    return 0;
}

static enum dtype dtype_named(const char *name)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {{"F32", DTYPE_F32}, {"F64", DTYPE_F64}, {"BF16", DTYPE_BF16},
                 {"F16", DTYPE_F16}, {"I32", DTYPE_I32}, {"U8", DTYPE_U8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            return known[i].dtype;
    return DTYPE_COUNT;
}

static int take_place(struct torch_reader *r, const struct unpickled_value *value,
                      const struct unpickle_type *type, int64_t span, struct file_tensor *tensor)
{
    const struct unpickled_value *storage = torch_value(r, value->items[0]);
    char name[NAME_LIMIT];
    const int length = snprintf(name, sizeof name, "data/%.*s",
                                (int)(storage->length < 64 ? storage->length : 64), storage->text);
    const struct zip_member *member = member_named(r, name, (size_t)length);
    const int64_t first = torch_value(r, value->items[1])->number;
    int64_t end;
    if (!member)
        return refuse_tensor(r, tensor, "has a storage that is no member of the archive");
    if (member->packed)
        return refuse_packed(r, member);
    if (first < 0 || __builtin_add_overflow(first, span, &end) || end > member->bytes / type->size)
        return refuse_tensor(r, tensor, "is larger than its storage: the file is damaged");
    tensor->offset = member->data + first * type->size;
    tensor->bytes = tensor_elements(tensor->ndim, tensor->dim) * type->size;
    return 0;
}

static int take_tensor(struct torch_reader *r, const struct unpickled_value *key,
                       const struct unpickled_value *value)
{
    const struct unpickle_type *type = unpickle_type(value->type);
    scope_free char *name = mem_strndup(key->text, key->length);
    struct file_tensor tensor = {.name = name, .file = r->file, .dtype = dtype_named(type->name)};
    int64_t span = 0;
    if (!name)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->source->name);
    if (strlen(name) != key->length)
        return refuse_tensor(r, &tensor, "has a name with a NUL byte");
    (void)snprintf(tensor.type, sizeof tensor.type, "%s", type->name); /* fits */
    tensor.integer = !strcmp(type->name, "I64");
    if (take_shape(r, value, &tensor, &span) < 0 || take_place(r, value, type, span, &tensor) < 0)
        return -1;
    return tensors_add(r->tensors, &tensor, r->err);
}

/* ---- the state dict ---- */

static bool has_tensors(const struct torch_reader *r, const struct unpickled_value *dict)
{
    if (dict->kind != UNPICKLED_DICT)
        return false;
    for (int i = 0; i < dict->count; i += 2)
        if (torch_value(r, dict->items[i + 1])->kind == UNPICKLED_TENSOR)
            return true;
    return false;
}

static bool key_is(const struct torch_reader *r, int index, const char *word)
{
    const struct unpickled_value *key = torch_value(r, index);
    return key->kind == UNPICKLED_TEXT && key->length == strlen(word) &&
           !memcmp(key->text, word, key->length);
}

static int refuse_dict(struct torch_reader *r, const struct unpickled_value *root)
{
    scope_buffer keys = {0};
    if (root->kind == UNPICKLED_TENSOR)
        return error_set(r->err, MUSTER_E_INVALID, "%s has one tensor, and no state dict", r->source->name);
    for (int i = 0; root->kind == UNPICKLED_DICT && i < root->count && i < 16; i += 2) {
        const struct unpickled_value *key = torch_value(r, root->items[i]);
        if (key->kind == UNPICKLED_TEXT)
            (void)buffer_printf(&keys, "%s%.*s", keys.length ? ", " : "",
                                (int)(key->length < 40 ? key->length : 40), key->text);
    }
    return error_set(
        r->err, MUSTER_E_INVALID,
        "%s has no state dict: neither the saved object nor its key state_dict, model_state_dict, model, "
        "module or net is a dict of tensors%s%s",
        r->source->name, keys.length ? "; its keys: " : "", keys.length ? keys.data : "");
}

static const struct unpickled_value *find_state(const struct torch_reader *r,
                                                const struct unpickled_value *root)
{
    static const char *const words[] = {"state_dict", "model_state_dict", "model", "module", "net"};
    if (has_tensors(r, root))
        return root;
    for (size_t w = 0; root->kind == UNPICKLED_DICT && w < sizeof words / sizeof *words; w++)
        for (int i = 0; i < root->count; i += 2)
            if (key_is(r, root->items[i], words[w]) && has_tensors(r, torch_value(r, root->items[i + 1])))
                return torch_value(r, root->items[i + 1]);
    return NULL;
}

static int take_state(struct torch_reader *r, int root)
{
    const struct unpickled_value *state = find_state(r, torch_value(r, root));
    if (!state)
        return refuse_dict(r, torch_value(r, root));
    for (int i = 0; i < state->count; i += 2) {
        const struct unpickled_value *key = torch_value(r, state->items[i]),
                                     *value = torch_value(r, state->items[i + 1]);
        if (key->kind != UNPICKLED_TEXT)
            return error_set(r->err, MUSTER_E_INVALID, "%s: a key of the state dict is no text",
                             r->source->name);
        if (value->kind != UNPICKLED_TENSOR)
            return error_set(r->err, MUSTER_E_INVALID, "%s: '%.*s' of the state dict is no tensor",
                             r->source->name, (int)(key->length < 100 ? key->length : 100), key->text);
        if (take_tensor(r, key, value) < 0)
            return -1;
    }
    return 0;
}

int torch_file_parse(const struct zip_source *source, int file, struct file_tensors *tensors,
                     struct muster_error *err)
{
    struct torch_reader r = {.source = source, .file = file, .tensors = tensors, .err = err};
    scope_buffer pickle = {0};
    scope_free char *name = mem_printf("%s: data.pkl", source->name);
    int root = 0;
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", source->name);
    int result = zip_read(source, &r.zip, err);
    if (!result)
        result = find_root(&r) < 0 || check_byte_order(&r) < 0 || read_member(&r, "data.pkl", &pickle) < 0
                     ? -1
                     : 0;
    if (!result)
        result = unpickle(name, pickle.data ? pickle.data : "", pickle.length, &r.values, &root, err);
    if (!result) {
        result = take_state(&r, root);
        unpickled_free(&r.values);
    }
    zip_free(&r.zip);
    return result;
}
