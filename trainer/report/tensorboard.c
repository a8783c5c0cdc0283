/* tensorboard.c - see report_internal.h. */
#include "trainer/report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tensorboard.pb-c.h"

typedef Muster__Tensorboard__Event event_message;
typedef Muster__Tensorboard__Summary summary_message;
typedef Muster__Tensorboard__Summary__Value value_message;

enum { DT_STRING = 7, TAG_SIZE = 96 };

void tensorboard_make(struct tensorboard *board)
{
    checksum_make(&board->crc, true);
}

static void put_little_endian(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

/* A checksum over data with checksums is weak, so TFRecord rotates it and adds a constant. */
static void put_checksum(const struct tensorboard *board, const void *data, int64_t bytes, unsigned char *to)
{
    const uint32_t crc = checksum_add(&board->crc, 0, data, bytes);
    put_little_endian(to, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

static int put_event(const struct tensorboard *board, event_message *event, int64_t step, int64_t wall_ns,
                     struct buffer *out)
{
    event->wall_time = (double)wall_ns / (double)NS_PER_S;
    event->step = step;
    const size_t bytes = muster__tensorboard__event__get_packed_size(event);
    unsigned char *at = (unsigned char *)buffer_reserve(out, bytes + 16);
    if (!at)
        return -1;
    put_little_endian(at, bytes, 8);
    put_checksum(board, at, 8, at + 8);
    (void)muster__tensorboard__event__pack(event, at + 12); /* as many bytes */
    put_checksum(board, at + 12, (int64_t)bytes, at + 12 + bytes);
    out->length += bytes + 16;
    return 0;
}

int tensorboard_begin(const struct tensorboard *board, int64_t step, int64_t wall_ns, struct buffer *out)
{
    static char version[] = "brain.Event:2";
    event_message first = MUSTER__TENSORBOARD__EVENT__INIT, start = first;
    Muster__Tensorboard__SessionLog log = MUSTER__TENSORBOARD__SESSION_LOG__INIT;
    first.what_case = MUSTER__TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    first.file_version = version;
    log.status = MUSTER__TENSORBOARD__SESSION_LOG__STATUS__START;
    start.what_case = MUSTER__TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    start.session_log = &log;
    if (put_event(board, &first, 0, wall_ns, out) < 0)
        return -1;
    return put_event(board, &start, step + 1, wall_ns, out);
}

/* Converts a value; false: it is no scalar. */
static bool scalar_of(const struct entry_value *value, float *out)
{
    switch (value->type) {
    case ENTRY_NUMBER:
        *out = (float)value->number;
        return true;
    case ENTRY_INTEGER:
        *out = (float)value->integer;
        return true;
    case ENTRY_FLAG:
        *out = (float)value->flag;
        return true;
    default:
        return false;
    }
}

static int put_values(const struct tensorboard *board, value_message **values, size_t count, int64_t step,
                      int64_t wall_ns, struct buffer *out)
{
    event_message event = MUSTER__TENSORBOARD__EVENT__INIT;
    summary_message summary = MUSTER__TENSORBOARD__SUMMARY__INIT;
    summary.value = values;
    summary.n_value = count;
    event.what_case = MUSTER__TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return put_event(board, &event, step, wall_ns, out);
}

int tensorboard_add(const struct tensorboard *board, const struct entry *entry, int64_t wall_ns,
                    struct buffer *out)
{
    char tags[ENTRY_VALUES][TAG_SIZE];
    value_message messages[ENTRY_VALUES], *values[ENTRY_VALUES];
    size_t count = 0;
    float scalar;
    for (int i = 0; *entry_kind_prefix(entry->kind) && i < entry->count; i++) {
        if (!scalar_of(&entry->values[i], &scalar))
            continue;
        values[count] = &messages[count];
        muster__tensorboard__summary__value__init(values[count]);
        (void)snprintf(tags[count], TAG_SIZE, "%s%s", entry_kind_prefix(entry->kind), entry->values[i].name);
        values[count]->tag = tags[count];
        values[count]->value_case = MUSTER__TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        values[count++]->simple_value = scalar;
    }
    return count ? put_values(board, values, count, entry->step, wall_ns, out) : 0;
}

int tensorboard_add_text(const struct tensorboard *board, const char *tag, const char *text, int64_t step,
                         int64_t wall_ns, struct buffer *out)
{
    static char plugin_name[] = "text";
    Muster__Tensorboard__Metadata metadata = MUSTER__TENSORBOARD__METADATA__INIT;
    Muster__Tensorboard__Metadata__Plugin plugin = MUSTER__TENSORBOARD__METADATA__PLUGIN__INIT;
    Muster__Tensorboard__Tensor tensor = MUSTER__TENSORBOARD__TENSOR__INIT;
    Muster__Tensorboard__Shape shape = MUSTER__TENSORBOARD__SHAPE__INIT;
    Muster__Tensorboard__Shape__Dimension one = MUSTER__TENSORBOARD__SHAPE__DIMENSION__INIT, *ones = &one;
    ProtobufCBinaryData bytes = {strlen(text), (uint8_t *)text}; /* only read */
    value_message value = MUSTER__TENSORBOARD__SUMMARY__VALUE__INIT, *values = &value;
    char name[TAG_SIZE];
    (void)snprintf(name, sizeof name, "%s", tag); /* a long tag is cut */
    plugin.plugin_name = plugin_name;
    metadata.plugin_data = &plugin;
    one.size = 1;
    shape.n_dim = 1;
    shape.dim = &ones;
    tensor.dtype = DT_STRING;
    tensor.tensor_shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &bytes;
    value.tag = name;
    value.metadata = &metadata;
    value.value_case = MUSTER__TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    return put_values(board, &values, 1, step, wall_ns, out);
}
