/* manifest_write.c - manifest.h: the text of a manifest. */
#include "runtime/checkpoint/manifest.h"

#include <string.h>

#include "proto/base/error.h"

const char *manifest_tensor_name(enum trainer_tensor tensor)
{
    static const char *const names[TRAINER_TENSOR_COUNT] = {"value",   "moment1",  "moment2",
                                                            "average", "feedback", "factor"};
    return names[tensor];
}

int manifest_put_crc(struct buffer *out, uint32_t crc)
{
    return buffer_printf(out, "%08x", crc);
}

void manifest_writer_begin(struct manifest_writer *writer)
{
    *writer = (struct manifest_writer){0};
    checksum_make(&writer->crc, true);
}

void manifest_writer_free(struct manifest_writer *writer)
{
    buffer_free(&writer->files);
    buffer_free(&writer->slices);
}

/* Rows are separated by a comma and a line's end; a failure stays in the buffer. */
static void begin_row(struct buffer *rows)
{
    (void)buffer_text(rows, rows->length ? ",\n" : "\n");
}

void manifest_add_file(struct manifest_writer *writer, const struct manifest_file *file)
{
    struct buffer *rows = &writer->files;
    begin_row(rows);
    (void)buffer_text(rows, "{\"name\":");
    (void)buffer_json_string(rows, file->name);
    (void)buffer_printf(rows, ",\"bytes\":%lld,\"header\":%lld,\"header_crc32c\":\"%08x\"}",
                        (long long)file->bytes, (long long)file->header, file->header_crc);
}

void manifest_add_slice(struct manifest_writer *writer, const struct manifest_slice *slice)
{
    struct buffer *rows = &writer->slices;
    begin_row(rows);
    (void)buffer_printf(rows, "{\"tensor\":\"%s\",", manifest_tensor_name(slice->tensor));
    if (slice->tensor == TRAINER_FEEDBACK)
        (void)buffer_printf(rows, "\"replica\":%d,", slice->replica);
    (void)buffer_printf(rows,
                        "\"parameter\":%d,\"first\":%lld,\"count\":%lld,\"file\":%d,"
                        "\"offset\":%lld,\"dtype\":\"%s\"," MANIFEST_ROW_CRC "%s\"}",
                        slice->param, (long long)slice->first, (long long)slice->count, slice->file,
                        (long long)slice->offset, dtype_name(slice->dtype), slice->crc);
}

static void put_texts(struct buffer *out, const char *name, manifest_texts texts)
{
    (void)buffer_printf(out, ",\n\"%s\":[", name);
    for (size_t i = 0; texts && texts[i]; i++) {
        (void)buffer_text(out, i ? ",\n" : "\n");
        (void)buffer_json_string(out, texts[i]);
    }
    (void)buffer_text(out, "]");
}

static void put_params(struct buffer *out, const struct model *model)
{
    (void)buffer_text(out, ",\n\"parameters\":[");
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *param = &model->params[i];
        (void)buffer_text(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        (void)buffer_json_string(out, param->name);
        (void)buffer_text(out, ",\"shape\":[");
        for (int d = 0; d < param->ndim; d++)
            (void)buffer_printf(out, "%s%lld", d ? "," : "", (long long)param->dim[d]);
        (void)buffer_text(out, "]}");
    }
    (void)buffer_text(out, "]");
}

static void put_run(struct buffer *out, const struct manifest_run *run)
{
    (void)buffer_printf(out, "{\"format\":\"%s\",\n\"step\":%lld,\n\"updates\":%lld,\n\"samples\":%lld",
                        MANIFEST_FORMAT, (long long)run->step, (long long)run->updates,
                        (long long)run->samples);
    (void)buffer_printf(
        out, ",\n\"loss_scale\":{\"scale\":%.17g,\"step\":%lld,\"last_overflow\":%lld,\"left\":%d}",
        run->scale.scale, (long long)run->scale.step, (long long)run->scale.last_overflow, run->scale.left);
    (void)buffer_printf(out, ",\n\"world_size\":%d,\n\"mesh\":{", run->world_size);
    for (int side = 0; side < SIDE_COUNT; side++)
        (void)buffer_printf(out, "%s\"%s\":%d", side ? "," : "", mesh_side_name((enum mesh_side)side),
                            run->mesh.side[side]);
    (void)buffer_text(out, "}");
    (void)buffer_text(out, ",\n\"numerics\":");
    (void)buffer_json_string(out, run->numerics);
    put_texts(out, "settings", run->settings);
    put_texts(out, "notes", run->notes);
}

static void put_rows(struct buffer *out, const char *name, const struct buffer *rows)
{
    (void)buffer_printf(out, ",\n\"%s\":[%s]", name, rows->data ? rows->data : "");
    out->failed |= rows->failed;
}

int manifest_format(const struct manifest_writer *writer, const struct manifest_run *run,
                    const struct model *model, struct buffer *out, struct muster_error *err)
{
    put_run(out, run);
    put_params(out, model);
    (void)buffer_printf(out, ",\n\"chunk\":%d", MANIFEST_CHUNK);
    put_rows(out, "files", &writer->files);
    put_rows(out, "slices", &writer->slices);
    if (!out->failed) {
        uint32_t crc = checksum_add(&writer->crc, 0, out->data, (int64_t)out->length);
        (void)buffer_printf(out, ",\n\"crc32c\":\"%08x\"}\n", crc);
    }
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for a checkpoint's manifest") : 0;
}
