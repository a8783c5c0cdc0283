/* torch_file_fuzz.c - arbitrary bytes as a file of torch.save, and as the pickle in one: tensors whose
 * elements are all inside of the file, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "runtime/files/files_internal.h"
#include "tests/fuzz/random_main.h"

enum { STORAGE = 64 };

struct memory {
    const char *data;
    size_t size;
};

static int read_memory(void *context, int64_t offset, void *out, size_t bytes, struct muster_error *err)
{
    const struct memory *memory = context;
    (void)err;
    if (offset < 0 || (size_t)offset > memory->size || bytes > memory->size - (size_t)offset)
        abort(); /* requested bytes are in the file */
    if (bytes)
        memcpy(out, memory->data + offset, bytes);
    return 0;
}

/* The last element of a view is where the file has bytes. */
static void check(const struct file_tensor *t, int64_t size)
{
    int64_t last = 0;
    if (tensor_elements(t->ndim, t->dim) == 0)
        return;
    for (int d = 0; d < t->ndim; d++)
        last += (t->dim[d] - 1) * t->stride[d];
    const int64_t bytes = t->dtype == DTYPE_COUNT ? 1 : dtype_size(t->dtype);
    if (t->offset < 0 || last < 0 || t->offset + (last + 1) * bytes > size)
        abort();
}

static void parse(const char *data, size_t size)
{
    struct memory memory = {data, size};
    const struct zip_source source = {"fuzz", (int64_t)size, read_memory, &memory};
    struct file_tensors tensors = {0};
    struct muster_error err = {0};
    if (torch_file_parse(&source, 0, &tensors, &err) < 0) {
        if (!err.text[0])
            abort();
    } else {
        for (int i = 0; i < tensors.count; i++)
            check(&tensors.item[i], (int64_t)size);
        tensors_unwrap(&tensors);
        (void)tensors_sort(&tensors, "fuzz", &err);
    }
    tensors_free(&tensors);
}

/* An archive with this pickle, and storages 0 and 1. */
static void put_archive(const void *pickle, size_t size, struct buffer *out)
{
    static const char *const names[] = {"m/data.pkl", "m/data/0", "m/data/1"};
    static const char zeros[STORAGE];
    struct zip zip = {0};
    for (int i = 0; i < 3; i++) {
        if (zip_add(&zip, names[i], i ? STORAGE : (int64_t)size, 1, NULL) < 0 ||
            zip_header(&zip.member[i], out) < 0)
            abort();
        (void)buffer_append(out, i ? zeros : pickle, i ? STORAGE : size);
    }
    if (zip_directory(&zip, out) < 0)
        abort();
    zip_free(&zip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer archive = {0};
    parse((const char *)data, size);
    put_archive(data, size, &archive);
    parse(archive.data, archive.length);
    buffer_free(&archive);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    struct buffer pickle = {0}, archive = {0};
    const struct file_tensor tensors[] = {
        {.name = "module.a", .dtype = DTYPE_F32, .ndim = 2, .dim = {2, 3}},
        {.name = "module._orig_mod.b", .dtype = DTYPE_BF16, .ndim = 1, .dim = {7}}};
    if (pickle_state_dict(tensors, 2, "module.c", 0, &pickle, NULL) < 0)
        return 1;
    put_archive(pickle.data, pickle.length, &archive);
    const struct fuzz_seed seeds[] = {{pickle.data, pickle.length}, {archive.data, archive.length}};
    const int result = fuzz_main(argc, argv, seeds, 2);
    buffer_free(&pickle);
    buffer_free(&archive);
    return result;
}
#endif
