/* wandb.c - see report_internal.h. */
#include "trainer/report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "wandb.pb-c.h"

typedef Muster__Wandb__Record record_message;
typedef Muster__Wandb__Item item_message;

enum { BLOCK = 32768, CHUNK_HEAD = 7, ITEMS = ENTRY_VALUES + 4, KEY_SIZE = 96, VALUE_SIZE = 40, TAGS = 64 };
enum chunk_type { CHUNK_WHOLE = 1, CHUNK_FIRST, CHUNK_MIDDLE, CHUNK_LAST };

static char empty_text[] = "";

/* protobuf-c's messages have no const; they are only read. */
static char *wandb_text(const char *text)
{
    return text ? (char *)(uintptr_t)text : empty_text;
}

static int put_record(struct wandb *log, record_message *record, struct buffer *out)
{
    record->num = ++log->records;
    const size_t bytes = muster__wandb__record__get_packed_size(record);
    char *at = buffer_reserve(out, 4 + bytes);
    if (!at)
        return -1;
    for (int i = 0; i < 4; i++)
        at[i] = (char)(bytes >> 8 * i);
    (void)muster__wandb__record__pack(record, (uint8_t *)at + 4); /* packs `bytes` bytes */
    out->length += 4 + bytes;
    return 0;
}

static void timestamp_of(int64_t ns, Muster__Wandb__Timestamp *to)
{
    muster__wandb__timestamp__init(to);
    to->seconds = ns / NS_PER_S;
    to->nanos = (int32_t)(ns % NS_PER_S);
}

/* ---- values ---- */

/* Writes a number; W&B reads a number that is not finite as a text with its name. */
static void number_text(double value, char *to)
{
    if (isfinite(value)) {
        (void)snprintf(to, VALUE_SIZE, "%.9g", value);
        if (strtod(to, NULL) != value)
            (void)snprintf(to, VALUE_SIZE, "%.17g", value);
        return;
    }
    (void)snprintf(to, VALUE_SIZE, "%s",
                   isnan(value) ? "\"NaN\""
                   : value > 0  ? "\"Infinity\""
                                : "\"-Infinity\"");
}

/* Writes a value; false: W&B does not plot this type. */
static bool value_text(const struct entry_value *value, char *to)
{
    switch (value->type) {
    case ENTRY_NUMBER:
        number_text(value->number, to);
        return true;
    case ENTRY_INTEGER:
        (void)snprintf(to, VALUE_SIZE, "%lld", (long long)value->integer);
        return true;
    case ENTRY_FLAG:
        (void)snprintf(to, VALUE_SIZE, "%d", value->flag);
        return true;
    default:
        return false;
    }
}

/* The items of a record, with the memory of their texts. */
struct item_list {
    item_message items[ITEMS], *pointers[ITEMS];
    char keys[ITEMS][KEY_SIZE], values[ITEMS][VALUE_SIZE], *nested[ITEMS];
    size_t count;
};

static void add_item(struct item_list *list, const char *prefix, const char *key, const char *value)
{
    item_message *item = &list->items[list->count];
    if (list->count == ITEMS)
        return;
    muster__wandb__item__init(item);
    (void)snprintf(list->keys[list->count], KEY_SIZE, "%s%s", prefix, key); /* a long key is cut */
    (void)snprintf(list->values[list->count], VALUE_SIZE, "%s", value);     /* fits */
    list->nested[list->count] = list->keys[list->count];
    item->nested_key = &list->nested[list->count]; /* one part: a dot in the key is no level */
    item->n_nested_key = 1;
    item->value_json = list->values[list->count];
    list->pointers[list->count++] = item;
}

static void add_entry(struct item_list *list, const char *prefix, const struct entry *entry)
{
    char value[VALUE_SIZE];
    for (int i = 0; i < entry->count; i++)
        if (value_text(&entry->values[i], value))
            add_item(list, prefix, entry->values[i].name, value);
}

/* ---- names ---- */

static bool is_new_name(struct wandb *log, const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    for (int i = 0; i < log->name_count; i++)
        if (log->names[i] == hash)
            return false;
    if (log->name_count == WANDB_NAMES)
        return false; /* the others are plotted over _step */
    log->names[log->name_count++] = hash;
    return true;
}

static int define_name(struct wandb *log, const char *name, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Metric metric = MUSTER__WANDB__METRIC__INIT;
    Muster__Wandb__Metric__Options options = MUSTER__WANDB__METRIC__OPTIONS__INIT;
    static char step[] = WANDB_STEP;
    if (!is_new_name(log, name))
        return 0;
    metric.name = wandb_text(name);
    options.defined = true;
    if (strcmp(name, WANDB_STEP) != 0) {
        metric.step_metric = step;
        options.step_sync = true;
    }
    metric.options = &options;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_METRIC;
    record.metric = &metric;
    return put_record(log, &record, out);
}

/* ---- the configuration ---- */

/* Writes the value of a setting as JSON: a number, true, false, or a text. */
static void put_setting_value(const char *value, struct buffer *out)
{
    char *end = NULL;
    const double number = strtod(value, &end);
    const bool is_number = end != value && !*end && isfinite(number) &&
                           strspn(value, "-.0123456789eE+") == strlen(value) && strchr("-0123456789", *value);
    if (is_number || !strcmp(value, "true") || !strcmp(value, "false"))
        buffer_text(out, value);
    else
        buffer_json_string(out, value);
}

/* Writes a setting: "training.steps=4" becomes {"training": {"steps": 4}}. */
static int put_setting(struct wandb *log, char *line, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Config config = MUSTER__WANDB__CONFIG__INIT;
    item_message item = MUSTER__WANDB__ITEM__INIT, *items = &item;
    char *value = strchr(line, '='), *parts[2] = {line, NULL};
    scope_buffer json = {0};
    if (!value)
        return 0;
    *value++ = '\0';
    put_setting_value(value, &json);
    if (json.failed)
        return -1;
    parts[1] = strchr(line, '.');
    if (parts[1])
        *parts[1]++ = '\0';
    item.nested_key = parts;
    item.n_nested_key = parts[1] ? 2 : 1;
    item.value_json = json.data;
    config.update = &items;
    config.n_update = 1;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_CONFIG;
    record.config = &config;
    return put_record(log, &record, out);
}

int wandb_set(struct wandb *log, const char *settings, struct buffer *out)
{
    scope_free char *lines = mem_strdup(settings ? settings : "");
    char *rest = NULL;
    if (!lines)
        return -1;
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (put_setting(log, line + strspn(line, " "), out) < 0)
            return -1;
    return 0;
}

/* ---- the beginning ---- */

static int put_header(struct wandb *log, struct buffer *out)
{
    static char producer[] = "muster", consumer[] = "0.40.0";
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Header header = MUSTER__WANDB__HEADER__INIT;
    Muster__Wandb__Header__Version version = MUSTER__WANDB__HEADER__VERSION__INIT;
    version.producer = producer;
    version.min_consumer = consumer;
    header.version_info = &version;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_HEADER;
    record.header = &header;
    return put_record(log, &record, out);
}

static int put_run(struct wandb *log, const struct wandb_run *from, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Run run = MUSTER__WANDB__RUN__INIT;
    Muster__Wandb__Timestamp start;
    scope_free char *tags = mem_strdup(from->tags ? from->tags : "");
    char *each[TAGS], *rest = NULL;
    if (!tags)
        return -1;
    for (char *tag = strtok_r(tags, ",", &rest); tag && run.n_tags < TAGS; tag = strtok_r(NULL, ",", &rest))
        each[run.n_tags++] = tag + strspn(tag, " ");
    timestamp_of(log->start_ns, &start);
    run.run_id = wandb_text(from->id);
    run.entity = wandb_text(from->entity);
    run.project = wandb_text(from->project);
    run.display_name = wandb_text(from->name);
    run.run_group = wandb_text(from->group);
    run.job_type = wandb_text(from->job_type);
    run.notes = wandb_text(from->notes);
    run.host = wandb_text(from->host);
    run.tags = each;
    run.start_time = &start;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_RUN;
    record.run = &run;
    return put_record(log, &record, out);
}

static int put_environment(struct wandb *log, const struct wandb_run *run, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Environment environment = MUSTER__WANDB__ENVIRONMENT__INIT;
    Muster__Wandb__Environment__Memory memory = MUSTER__WANDB__ENVIRONMENT__MEMORY__INIT;
    Muster__Wandb__Timestamp start;
    timestamp_of(log->start_ns, &start);
    environment.started_at = &start;
    environment.os = wandb_text(run->os);
    environment.host = wandb_text(run->host);
    environment.program = wandb_text(run->program);
    environment.executable = wandb_text(run->program);
    environment.root = wandb_text(run->folder);
    environment.writer_id = wandb_text(run->id);
    environment.args = (char **)(uintptr_t)run->arguments;
    while (run->arguments && run->arguments[environment.n_args])
        environment.n_args++;
    environment.cpu_count = environment.cpu_count_logical = (uint32_t)run->cpus;
    memory.total = (uint64_t)run->memory;
    environment.memory = run->memory ? &memory : NULL;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_ENVIRONMENT;
    record.environment = &environment;
    return put_record(log, &record, out);
}

int wandb_begin(struct wandb *log, const struct wandb_run *run, int64_t wall_ns, struct buffer *out)
{
    log->start_ns = wall_ns;
    return put_header(log, out) < 0 || put_run(log, run, out) < 0 || put_environment(log, run, out) < 0
               ? -1
               : wandb_set(log, run->settings, out);
}

/* ---- rows ---- */

static int put_summary(struct wandb *log, struct item_list *list, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Summary summary = MUSTER__WANDB__SUMMARY__INIT;
    summary.update = list->pointers;
    summary.n_update = list->count;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_SUMMARY;
    record.summary = &summary;
    return put_record(log, &record, out);
}

static int put_history(struct wandb *log, struct item_list *list, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__History history = MUSTER__WANDB__HISTORY__INIT;
    Muster__Wandb__History__Step step = MUSTER__WANDB__HISTORY__STEP__INIT;
    step.num = log->rows++;
    history.item = list->pointers;
    history.n_item = list->count;
    history.step = &step;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_HISTORY;
    record.history = &history;
    return put_record(log, &record, out);
}

static void add_number(struct item_list *list, const char *key, double value)
{
    char text[VALUE_SIZE];
    number_text(value, text);
    add_item(list, "", key, text);
}

int wandb_add(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out)
{
    const char *prefix = entry_kind_prefix(entry->kind);
    struct item_list list;
    list.count = 0;
    if (!*prefix)
        return 0;
    add_number(&list, WANDB_STEP, (double)entry->step);
    add_entry(&list, prefix, entry);
    for (size_t i = 0; i < list.count; i++)
        if (define_name(log, list.keys[i], out) < 0)
            return -1;
    add_number(&list, "_step", (double)log->rows);
    add_number(&list, "_timestamp", (double)wall_ns / (double)NS_PER_S);
    add_number(&list, "_runtime", (double)(wall_ns - log->start_ns) / (double)NS_PER_S);
    return put_history(log, &list, out) < 0 ? -1 : put_summary(log, &list, out);
}

int wandb_add_stats(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Stats stats = MUSTER__WANDB__STATS__INIT;
    Muster__Wandb__Timestamp when;
    struct item_list list;
    list.count = 0;
    add_entry(&list, "", entry);
    for (size_t i = 0; i < list.count; i++) { /* keys of statistics are plain texts */
        list.items[i].key = list.keys[i];
        list.items[i].nested_key = NULL;
        list.items[i].n_nested_key = 0;
    }
    timestamp_of(wall_ns, &when);
    stats.timestamp = &when;
    stats.item = list.pointers;
    stats.n_item = list.count;
    record.what_case = MUSTER__WANDB__RECORD__WHAT_STATS;
    record.stats = &stats;
    return list.count ? put_record(log, &record, out) : 0;
}

int wandb_end(struct wandb *log, int exit_code, int64_t wall_ns, struct buffer *out)
{
    record_message record = MUSTER__WANDB__RECORD__INIT;
    Muster__Wandb__Exit end = MUSTER__WANDB__EXIT__INIT;
    end.exit_code = exit_code;
    end.runtime = (int32_t)((wall_ns - log->start_ns) / NS_PER_S);
    record.what_case = MUSTER__WANDB__RECORD__WHAT_EXIT;
    record.exit = &end;
    return put_record(log, &record, out);
}

/* ---- the framing ---- */

static uint32_t chunk_checksum(const struct crc32 *crc, unsigned char type, const void *data, size_t length)
{
    return crc32_add(crc, crc32_add(crc, 0, &type, 1), data, (int64_t)length);
}

static void put_chunk(const struct crc32 *crc, enum chunk_type type, const char *data, size_t length,
                      struct buffer *out)
{
    const uint32_t sum = chunk_checksum(crc, (unsigned char)type, data, length);
    const unsigned char head[CHUNK_HEAD] = {(unsigned char)sum,         (unsigned char)(sum >> 8),
                                            (unsigned char)(sum >> 16), (unsigned char)(sum >> 24),
                                            (unsigned char)length,      (unsigned char)(length >> 8),
                                            (unsigned char)type};
    buffer_append(out, head, sizeof head);
    buffer_append(out, data, length);
}

static void frame_record(const struct crc32 *crc, int64_t begin, const char *data, size_t length,
                         struct buffer *out)
{
    static const char zeros[CHUNK_HEAD];
    for (bool first = true; first || length; first = false) {
        size_t left = BLOCK - (size_t)((begin + (int64_t)out->length) % BLOCK);
        if (left < CHUNK_HEAD) {
            buffer_append(out, zeros, left);
            left = BLOCK;
        }
        const size_t part = length < left - CHUNK_HEAD ? length : left - CHUNK_HEAD;
        const bool last = part == length;
        put_chunk(crc,
                  first && last ? CHUNK_WHOLE
                  : first       ? CHUNK_FIRST
                  : last        ? CHUNK_LAST
                                : CHUNK_MIDDLE,
                  data, part, out);
        data += part;
        length -= part;
        if (last)
            break;
    }
}

static uint32_t little_endian(const char *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)(unsigned char)at[i] << 8 * i;
    return value;
}

static const char file_begin[WANDB_BEGIN] = {':', 'W', '&', 'B', (char)0xe1, (char)0xbe, 0};

int wandb_frame(const struct crc32 *crc, int64_t at, const char *records, size_t length, struct buffer *out)
{
    if (at == 0)
        buffer_append(out, file_begin, WANDB_BEGIN);
    while (length >= 4) {
        const size_t bytes = little_endian(records);
        if (bytes > length - 4)
            break; /* not written by put_record */
        frame_record(crc, at, records + 4, bytes, out);
        records += 4 + bytes;
        length -= 4 + bytes;
    }
    return out->failed ? -1 : 0;
}

/* ---- a file that is continued ---- */

static double row_step(const Muster__Wandb__History *row)
{
    for (size_t i = 0; i < row->n_item; i++)
        if (row->item[i]->n_nested_key == 1 && !strcmp(row->item[i]->nested_key[0], WANDB_STEP))
            return strtod(row->item[i]->value_json, NULL);
    return 0;
}

/* Reads a record of the log; false: the file is cut before it. */
static bool keep_record(const struct buffer *bytes, int64_t step, struct wandb *log)
{
    record_message *record = muster__wandb__record__unpack(NULL, bytes->length, (const uint8_t *)bytes->data);
    if (!record)
        return false;
    bool keep = record->what_case != MUSTER__WANDB__RECORD__WHAT_EXIT;
    if (record->what_case == MUSTER__WANDB__RECORD__WHAT_HISTORY) {
        keep = row_step(record->history) <= (double)step;
        log->rows += keep;
    } else if (record->what_case == MUSTER__WANDB__RECORD__WHAT_METRIC) {
        (void)is_new_name(log, record->metric->name);
    } else if (record->what_case == MUSTER__WANDB__RECORD__WHAT_RUN && record->run->start_time) {
        log->start_ns = record->run->start_time->seconds * NS_PER_S + record->run->start_time->nanos;
    }
    log->records += keep;
    muster__wandb__record__free_unpacked(record, NULL);
    return keep;
}

int64_t wandb_cut(const struct crc32 *crc, const char *data, size_t length, int64_t step, struct wandb *log)
{
    scope_buffer record = {0};
    size_t at = WANDB_BEGIN, kept = WANDB_BEGIN;
    bool within = false; /* inside of a record, whose first chunk may be empty */
    if (length < WANDB_BEGIN || memcmp(data, file_begin, WANDB_BEGIN) != 0)
        return -1;
    *log = (struct wandb){0};
    while (at + CHUNK_HEAD <= length) {
        const size_t left = BLOCK - at % BLOCK;
        if (left < CHUNK_HEAD) {
            at += left;
            continue;
        }
        const unsigned char *head = (const unsigned char *)data + at;
        const size_t bytes = head[4] | (size_t)head[5] << 8;
        const int type = head[6];
        const bool begins = type == CHUNK_WHOLE || type == CHUNK_FIRST;
        if (bytes > left - CHUNK_HEAD || at + CHUNK_HEAD + bytes > length || type < CHUNK_WHOLE ||
            type > CHUNK_LAST || begins == within ||
            chunk_checksum(crc, (unsigned char)type, head + CHUNK_HEAD, bytes) != little_endian(data + at))
            break;
        if (buffer_append(&record, head + CHUNK_HEAD, bytes) < 0)
            return -1;
        at += CHUNK_HEAD + bytes;
        within = type == CHUNK_FIRST || type == CHUNK_MIDDLE;
        if (within)
            continue;
        if (!keep_record(&record, step, log))
            break;
        kept = at;
        buffer_clear(&record);
    }
    return (int64_t)kept;
}
