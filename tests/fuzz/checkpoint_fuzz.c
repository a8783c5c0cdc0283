/* checkpoint_fuzz.c - arbitrary bytes as the manifest of a checkpoint, with a checksum that is right: an
 * index in which each element of each parameter is there once, inside of its file, or an error with a text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/manifest.h"
#include "runtime/model/architectures.h"
#include "tests/fuzz/random_main.h"

static struct model *the_model(void)
{
    static struct model *model;
    const struct gpt2_config gpt = {.layers = 1, .channels = 2, .heads = 1, .vocab = 2, .max_positions = 2};
    if (!model)
        model = gpt2_create(&gpt, NULL);
    if (!model)
        abort();
    return model;
}

/* Where any loader would read. */
static void check_tensor(const struct manifest *m, enum trainer_tensor tensor, int param)
{
    const struct manifest_slice *slices;
    int count = manifest_slices(m, tensor, param, &slices);
    int64_t next = 0;
    for (int i = 0; i < count; i++) {
        const struct manifest_slice *s = &slices[i];
        int64_t bytes = s->count * dtype_size(s->dtype);
        if (s->tensor != tensor || s->param != param || s->first != next || s->count < 1 || s->file < 0 ||
            s->file >= m->file_count || s->offset < 0 || s->offset > m->files[s->file].bytes - bytes)
            abort();
        for (int64_t chunk = 0; chunk * MANIFEST_CHUNK < bytes; chunk++)
            (void)manifest_chunk_crc(s, chunk);
        next += s->count;
    }
    if (next != param_elements(&the_model()->params[param]) && (count || tensor == TRAINER_VALUE))
        abort();
}

static void check(const struct manifest *m)
{
    for (int tensor = 0; tensor < TRAINER_TENSOR_COUNT; tensor++)
        for (int param = 0; param < the_model()->param_count; param++)
            check_tensor(m, (enum trainer_tensor)tensor, param);
    for (size_t i = 0; m->run.settings[i]; i++)
        (void)strlen(m->run.settings[i]);
    if (m->run.step < 0 || m->run.samples < 0 || m->run.world_size < 1 || !m->run.numerics)
        abort();
}

static bool parse(const char *text, size_t length)
{
    struct muster_error err = {0};
    struct manifest manifest;
    const bool good = !manifest_parse("fuzz", text, length, the_model(), &manifest, &err);
    if (good)
        check(&manifest);
    else if (!err.text[0])
        abort();
    manifest_free(&manifest);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checksum crc;
    struct buffer text = {0};
    (void)parse((const char *)data, size);
    checksum_make(&crc, true);
    if (buffer_append(&text, data, size) ||
        buffer_printf(&text, ",\n\"crc32c\":\"%08x\"}\n", checksum_add(&crc, 0, data, (int64_t)size)))
        abort();
    (void)parse(text.data, text.length);
    buffer_free(&text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
static void add_half(struct manifest_writer *writer, int file, int param, enum trainer_tensor tensor)
{
    int64_t elements = param_elements(&the_model()->params[param]), half = elements / 2;
    manifest_add_slice(writer, &(struct manifest_slice){.tensor = tensor,
                                                        .param = param,
                                                        .first = file ? half : 0,
                                                        .count = file ? elements - half : half,
                                                        .file = file,
                                                        .offset = 4096 + 512 * param,
                                                        .dtype = DTYPE_F32,
                                                        .crc = "0123abcd"});
}

/* A whole one of two ranks without its last member, as manifest_write.c makes it. */
static void write_good(struct buffer *text)
{
    struct manifest_writer writer;
    const struct model *model = the_model();
    static const char *const settings[] = {"training.steps=3", NULL};
    const struct manifest_run run = {.step = 3,
                                     .samples = 12,
                                     .world_size = 2,
                                     .mesh = MESH(1, 1, 2),
                                     .numerics = "world_size=2\n",
                                     .settings = settings};
    manifest_writer_begin(&writer);
    for (int file = 0; file < 2; file++) {
        manifest_add_file(&writer,
                          &(struct manifest_file){.name = file ? "rank-1.safetensors" : "rank-0.safetensors",
                                                  .bytes = 1 << 20,
                                                  .header = 4096});
        for (int param = 0; param < model->param_count; param++)
            for (int tensor = 0; tensor < (param ? 1 : TRAINER_TENSOR_COUNT); tensor++)
                add_half(&writer, file, param, (enum trainer_tensor)tensor);
    }
    if (manifest_format(&writer, &run, model, text, NULL) < 0)
        abort();
    manifest_writer_free(&writer);
    if (!parse(text->data, text->length) || text->length > FUZZ_INPUT)
        abort();
    text->length -= strlen(",\n\"crc32c\":\"00000000\"}\n");
}

int main(int argc, char **argv)
{
    struct buffer good = {0};
    write_good(&good);
    const struct fuzz_seed seeds[] = {{good.data, good.length}};
    int result = fuzz_main(argc, argv, seeds, 1);
    buffer_free(&good);
    model_destroy(the_model());
    return result;
}
#endif
