/* decide.c - the second stage of prepare.h: marks duplicates, the validation split, and the sample that
 * trains the tokenizer. All decisions are functions of the hashes of the texts. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/corpus/prepare_internal.h"

enum { OPEN_PARTS = 16, TABLE_BYTES = 32 << 20 };
#define DECISIONS_MAGIC UINT64_C(0x3153494345444D43)

struct decisions_header {
    uint64_t magic, key, documents;
};

/* The open parts for load_document; part i is in slot i % OPEN_PARTS. */
struct loading {
    struct prepare *prepare;
    struct part_reader *reader[OPEN_PARTS];
    int part[OPEN_PARTS];
    struct words words;
    struct buffer text;
};

/* ---- duplicates ---- */

static int visit_part(struct prepare *p, int part,
                      int (*each)(void *call, int64_t document, const struct duplicates_entry *entry),
                      void *call, struct muster_error *err)
{
    GUARD(guard_part_reader) struct part_reader *reader = prepare_open_part(p, part, err);
    struct part_record record;
    const uint64_t *keys;
    int64_t document = p->part[part].document;
    int found = reader ? 0 : -1;
    while (reader && (found = part_reader_next(reader, &record, &keys, err)) > 0) {
        const struct duplicates_entry entry = {{record.hash[0], record.hash[1]},
                                               record.shingles ? keys : NULL};
        if (each(call, document++, &entry) < 0)
            return -1;
    }
    return found;
}

static int visit_all(void *context,
                     int (*each)(void *call, int64_t document, const struct duplicates_entry *entry),
                     void *call, struct muster_error *err)
{
    struct prepare *p = ((struct loading *)context)->prepare;
    for (int i = 0; i < p->parts; i++)
        if (visit_part(p, i, each, call, err) < 0)
            return -1;
    return 0;
}

static int part_of(const struct prepare *p, int64_t document)
{
    int low = 0, high = p->parts - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (p->part[middle].document <= document)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int load_document(void *context, int64_t document, struct shingles *out, struct muster_error *err)
{
    struct loading *l = context;
    const int part = part_of(l->prepare, document), slot = part % OPEN_PARTS;
    struct part_record record;
    if (l->reader[slot] && l->part[slot] != part)
        part_reader_close(take_pointer(&l->reader[slot]));
    if (!l->reader[slot] && !(l->reader[slot] = prepare_open_part(l->prepare, part, err)))
        return -1;
    l->part[slot] = part;
    if (part_reader_seek(l->reader[slot], document - l->prepare->part[part].document, err) < 0 ||
        part_reader_next(l->reader[slot], &record, NULL, err) < 0 ||
        part_reader_text(l->reader[slot], &record, &l->text, err) < 0)
        return -1;
    if (words_split(&l->words, l->text.data, l->text.length) < 0 || shingles_make(out, &l->words) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to compare texts of %zu bytes", l->text.length);
    return 0;
}

static int find_duplicates(struct prepare *p, struct muster_error *err)
{
    struct loading loading = {.prepare = p};
    const struct duplicates_source source = {(int64_t)p->total.kept, visit_all, load_document, &loading};
    const struct duplicates_options options = {p->bands, p->settings->near_threshold, TABLE_BYTES};
    const int result = duplicates_find(&source, &options, p->decision, err);
    for (int i = 0; i < OPEN_PARTS; i++)
        part_reader_close(loading.reader[i]);
    words_free(&loading.words);
    buffer_free(&loading.text);
    return result;
}

/* ---- the split and the sample ---- */

/* Calls each for every record that is no duplicate. */
static int visit_kept(struct prepare *p,
                      void (*each)(void *call, int64_t document, const struct part_record *record),
                      void *call, struct muster_error *err)
{
    for (int i = 0; i < p->parts; i++) {
        GUARD(guard_part_reader) struct part_reader *reader = prepare_open_part(p, i, err);
        struct part_record record;
        int64_t document = p->part[i].document;
        int found = reader ? 0 : -1;
        while (reader && (found = part_reader_next(reader, &record, NULL, err)) > 0) {
            if (!(p->decision[document] & DECISION_DUPLICATE))
                each(call, document, &record);
            document++;
        }
        if (found < 0)
            return -1;
    }
    return 0;
}

/* A random choice of documents. A document's draw is a number below 2^64, made from its hash; documents with
 * a draw below the threshold get the mark. */
struct choice {
    struct prepare *prepare;
    uint8_t mark;
    uint8_t excluded;   /* documents with these marks take no part */
    int hash_word;      /* word of the hash, 0 or 1, that gives the draw */
    double threshold;   /* share of 2^64 */
    int64_t candidates; /* documents that take part */
    int64_t chosen;
    uint64_t bytes;            /* text of the candidates */
    int64_t smallest, largest; /* documents with the smallest and largest draw; -1: none */
    uint64_t smallest_draw, largest_draw;
};

static void choose_document(void *call, int64_t document, const struct part_record *record)
{
    struct choice *c = call;
    uint64_t draw = record->hash[c->hash_word] ^ (record->hash[c->hash_word] >> 31);
    draw *= UINT64_C(0x9E3779B97F4A7C15);
    draw ^= draw >> 29;
    if (c->prepare->decision[document] & c->excluded)
        return;
    c->candidates++;
    c->bytes += record->length;
    if (c->smallest < 0 || draw < c->smallest_draw) {
        c->smallest = document;
        c->smallest_draw = draw;
    }
    if (c->largest < 0 || draw > c->largest_draw) {
        c->largest = document;
        c->largest_draw = draw;
    }
    if ((double)draw < c->threshold) {
        c->prepare->decision[document] |= c->mark;
        c->chosen++;
    }
}

static int choose_share(struct choice *c, double share, struct muster_error *err)
{
    c->smallest = c->largest = -1;
    c->threshold = share * 18446744073709551616.0;
    return visit_kept(c->prepare, choose_document, c, err);
}

/* Marks the validation split: at least one document is held out, and at least one is not. *train_bytes: text
 * of the documents that are not held out. */
static int hold_out(struct prepare *p, uint64_t *train_bytes, struct muster_error *err)
{
    struct choice c = {.prepare = p, .mark = DECISION_HELD, .hash_word = 0};
    if (choose_share(&c, p->settings->validation_share, err) < 0)
        return -1;
    if (c.candidates && c.chosen == c.candidates)
        p->decision[c.largest] &= (uint8_t)~DECISION_HELD;
    if (!c.chosen && c.candidates > 1 && p->settings->validation_share > 0)
        p->decision[c.smallest] |= DECISION_HELD;
    struct choice rest = {.prepare = p, .excluded = DECISION_HELD, .hash_word = 1};
    if (choose_share(&rest, 0, err) < 0)
        return -1;
    *train_bytes = rest.bytes;
    return 0;
}

/* Marks the sample: about sample_bytes of the documents that are not held out, at least one document. */
static int choose_sample(struct prepare *p, uint64_t train_bytes, struct muster_error *err)
{
    struct choice c = {.prepare = p, .mark = DECISION_SAMPLED, .excluded = DECISION_HELD, .hash_word = 1};
    const double share = train_bytes ? (double)p->settings->sample_bytes / (double)train_bytes : 1;
    if (choose_share(&c, share < 1 ? share : 1.0 + 1e-9, err) < 0)
        return -1;
    if (!c.chosen && c.candidates)
        p->decision[c.smallest] |= DECISION_SAMPLED;
    return 0;
}

/* ---- the file of decisions, for a later run ---- */

static uint64_t decisions_key(const struct prepare *p)
{
    uint64_t hash = text_hash(TEXT_HASH_START, "decide 1", 8);
    for (int i = 0; i < p->parts; i++)
        hash = text_hash(hash, &p->part[i].key, sizeof p->part[i].key);
    hash = text_hash(hash, &p->settings->validation_share, sizeof p->settings->validation_share);
    return text_hash(hash, &p->settings->sample_bytes, sizeof p->settings->sample_bytes);
}

/* false: there is no file, or it has another key. */
static bool read_decisions(struct prepare *p, const char *path)
{
    scope_buffer bytes = {0};
    struct decisions_header header;
    const size_t length = sizeof header + p->total.kept;
    if (io_read_file(path, length, &bytes, NULL) < 0 || bytes.length != length)
        return false;
    memcpy(&header, bytes.data, sizeof header);
    if (header.magic != DECISIONS_MAGIC || header.key != p->decided || header.documents != p->total.kept)
        return false;
    memcpy(p->decision, bytes.data + sizeof header, p->total.kept);
    return true;
}

static int make_decisions(struct prepare *p, const char *path, struct muster_error *err)
{
    const struct decisions_header header = {DECISIONS_MAGIC, p->decided, p->total.kept};
    uint64_t train_bytes;
    if (find_duplicates(p, err) < 0 || hold_out(p, &train_bytes, err) < 0 ||
        choose_sample(p, train_bytes, err) < 0)
        return -1;
    memcpy(p->decisions, &header, sizeof header);
    return io_write_file_atomic(path, p->decisions, sizeof header + p->total.kept, 0644, err);
}

/* ---- counts ---- */

static int count_part(struct prepare *p, int part, struct muster_error *err)
{
    GUARD(guard_part_reader) struct part_reader *reader = prepare_open_part(p, part, err);
    struct part_record record;
    const uint8_t *decision = p->decision + p->part[part].document;
    int found = reader ? 0 : -1;
    for (; reader && (found = part_reader_next(reader, &record, NULL, err)) > 0; decision++) {
        const int duplicate = *decision & DECISION_DUPLICATE;
        p->duplicates[duplicate]++;
        p->duplicate_bytes[duplicate] += record.length;
        p->sampled += (*decision & DECISION_SAMPLED) != 0;
        p->sampled_bytes += *decision & DECISION_SAMPLED ? record.length : 0;
    }
    return found;
}

static int refuse_empty(const struct prepare *p, struct muster_error *err)
{
    int most = 0;
    for (int i = 1; i < RULE_COUNT; i++)
        most = p->total.dropped[i] > p->total.dropped[most] ? i : most;
    return error_set(err, MUSTER_E_INVALID,
                     "none of the %llu documents of %s passes the rules; --%s (%g) drops %llu of them",
                     (unsigned long long)p->total.documents, p->settings->input, corpus_rules[most].name,
                     p->settings->limits[most], (unsigned long long)p->total.dropped[most]);
}

int prepare_decide(struct prepare *p, struct muster_error *err)
{
    scope_free char *path = prepare_path(p, "decisions");
    p->decisions = mem_calloc(sizeof(struct decisions_header) + p->total.kept + 1, 1);
    if (!path || !p->decisions)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %llu documents",
                         (unsigned long long)p->total.kept);
    p->decision = (uint8_t *)p->decisions + sizeof(struct decisions_header);
    if (!p->total.kept)
        return refuse_empty(p, err);
    p->decided = decisions_key(p);
    if (!read_decisions(p, path) && make_decisions(p, path, err) < 0)
        return -1;
    for (int i = 0; i < p->parts; i++)
        if (count_part(p, i, err) < 0)
            return -1;
    p->kept = p->duplicates[DUPLICATE_NONE];
    p->kept_bytes = p->duplicate_bytes[DUPLICATE_NONE];
    log_info(p->log, "duplicates: %llu exact, %llu near; %llu documents are kept",
             (unsigned long long)p->duplicates[DUPLICATE_EXACT],
             (unsigned long long)p->duplicates[DUPLICATE_NEAR], (unsigned long long)p->kept);
    return 0;
}
