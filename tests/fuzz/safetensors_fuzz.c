/* safetensors_fuzz.c - arbitrary bytes as a safetensors file: its tensors, all inside of it and apart from
 * each other, or an error with a text. Parsed tensors are formatted again and read again. */
#include <stdlib.h>
#include <string.h>

#include "runtime/files/codes.h"
#include "runtime/files/safetensors.h"
#include "tests/fuzz/random_main.h"

/* Every tensor is where the file has bytes, as many as its shape needs. */
static void check(const struct file_tensors *tensors, int64_t first, int64_t size)
{
    int64_t bytes = 0;
    for (int i = 0; i < tensors->count; i++) {
        const struct file_tensor *t = &tensors->item[i];
        int64_t elements = tensor_elements(t->ndim, t->dim);
        if (t->offset < first || t->bytes < 0 || t->offset > size - t->bytes || elements < 0 ||
            (t->dtype != DTYPE_COUNT && elements * dtype_size(t->dtype) != t->bytes))
            abort();
        bytes += t->bytes;
    }
    if (bytes != size - first)
        abort();
}

static void format_again(struct file_tensors *tensors)
{
    struct buffer out = {0};
    struct file_tensors again = {0};
    int64_t size = safetensors_format(tensors->item, tensors->count, NULL, &out, NULL);
    if (size >= 0) {
        int64_t length = safetensors_header_length("again", out.data, size, NULL);
        if (length + SAFETENSORS_LENGTH != (int64_t)out.length ||
            safetensors_parse("again", out.data + SAFETENSORS_LENGTH, (size_t)length, size, 0, &again,
                              NULL) ||
            again.count != tensors->count)
            abort();
        check(&again, (int64_t)out.length, size);
    }
    tensors_free(&again);
    buffer_free(&out);
}

/* Codes, scales and zeros of tensors in few bits are inside of the file. */
static void fold(struct file_tensors *tensors, int64_t size)
{
    struct muster_error err = {0};
    if (codes_fold(tensors, "fuzz", &err) < 0) {
        if (!err.text[0])
            abort();
        return;
    }
    for (int i = 0; i < tensors->count; i++) {
        const struct file_tensor *t = &tensors->item[i];
        const struct coded coded = {
            .coding = t->codes.coding, .rows = t->dim[0], .columns = t->dim[1], .group = t->codes.group};
        if (t->codes.there && (coded_code_bytes(&coded, coded.rows) != t->bytes ||
                               coded_scale_bytes(&coded, coded.rows) > size - t->codes.scales ||
                               coded_zero_bytes(&coded, coded.rows) > size - t->codes.zeros))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_error err = {0};
    struct file_tensors tensors = {0};
    int64_t bytes = (int64_t)size, length = safetensors_header_length("fuzz", data, bytes, &err);
    if (length >= 0 && length + SAFETENSORS_LENGTH > bytes)
        abort();
    int result = length < 0 ? -1
                            : safetensors_parse("fuzz", (const char *)data + SAFETENSORS_LENGTH,
                                                (size_t)length, bytes, 0, &tensors, &err);
    if (result && !err.text[0])
        abort();
    if (!result) {
        check(&tensors, length + SAFETENSORS_LENGTH, bytes);
        if (!tensors_sort(&tensors, "fuzz", &err)) {
            format_again(&tensors);
            fold(&tensors, bytes);
        }
    }
    tensors_free(&tensors);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char good[] =
        "\x80\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,"
        "8]},"
        "\"b\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[8,9]}}                    ";
    static const char coded[] = "\xb8\0\0\0\0\0\0\0"
                                "{\"w.scale\":{\"dtype\":\"F16\",\"shape\":[1,1],\"data_offsets\":[0,2]},\"w."
                                "int4\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[2,3]},\"w.zero\":"
                                "{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[3,4]}}    "
                                "\0\x3c\x21\3";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1}, {coded, sizeof coded - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
