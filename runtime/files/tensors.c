/* tensors.c - see tensors.h. */
#include "runtime/files/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

int tensors_add(struct file_tensors *tensors, const struct file_tensor *tensor, struct muster_error *err)
{
    if (tensors->count == tensors->room) {
        int room = tensors->room ? 2 * tensors->room : 64;
        struct file_tensor *item = mem_realloc(tensors->item, (size_t)room, sizeof *item);
        if (!item)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of %d tensors", room);
        tensors->item = item;
        tensors->room = room;
    }
    char *name = mem_strdup(tensor->name);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a tensor's name");
    tensors->item[tensors->count] = *tensor;
    tensors->item[tensors->count++].name = name;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct file_tensor *)a)->name, ((const struct file_tensor *)b)->name);
}

/* Removes a part and the dot after it. */
static void drop_part(char *name, const char *part)
{
    const size_t length = strlen(part);
    for (char *at = name; (at = strstr(at, part));)
        if ((at == name || at[-1] == '.') && at[length] == '.')
            memmove(at, at + length + 1, strlen(at + length + 1) + 1);
        else
            at += length;
}

void tensors_unwrap(struct file_tensors *tensors)
{
    static const char *const parts[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
    static const char module[] = "module.";
    const size_t length = sizeof module - 1;
    bool all = tensors->count > 0;
    for (int i = 0; i < tensors->count; i++) {
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            drop_part(tensors->item[i].name, parts[p]);
        all &= !strncmp(tensors->item[i].name, module, length);
    }
    for (int i = 0; all && i < tensors->count; i++) {
        char *name = tensors->item[i].name;
        memmove(name, name + length, strlen(name + length) + 1);
    }
}

int tensors_sort(struct file_tensors *tensors, const char *path, struct muster_error *err)
{
    if (!tensors->count)
        return 0;
    qsort(tensors->item, (size_t)tensors->count, sizeof *tensors->item, compare_names);
    for (int i = 1; i < tensors->count; i++) {
        if (!compare_names(&tensors->item[i - 1], &tensors->item[i]))
            return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' is there twice", path,
                             tensors->item[i].name);
    }
    return 0;
}

const struct file_tensor *tensors_find(const struct file_tensors *tensors, const char *name)
{
    const struct file_tensor wanted = {.name = (char *)name};
    return tensors->count
               ? bsearch(&wanted, tensors->item, (size_t)tensors->count, sizeof wanted, compare_names)
               : NULL;
}

void tensors_free(struct file_tensors *tensors)
{
    for (int i = 0; i < tensors->count; i++)
        mem_free(tensors->item[i].name);
    mem_free(tensors->item);
    *tensors = (struct file_tensors){0};
}

int64_t tensor_elements(int ndim, const int64_t *dim)
{
    int64_t elements = 1;
    for (int i = 0; i < ndim; i++) {
        if (dim[i] < 0 || __builtin_mul_overflow(elements, dim[i], &elements) || elements > INT64_MAX / 16)
            return -1;
    }
    return elements;
}

int tensor_shape_text(struct buffer *out, int ndim, const int64_t *dim)
{
    (void)buffer_text(out, "(");
    for (int i = 0; i < ndim; i++)
        (void)buffer_printf(out, "%s%lld", i ? ", " : "", (long long)dim[i]);
    return buffer_text(out, ")");
}
