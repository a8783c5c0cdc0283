/* train_tokenizer.c - the third stage of prepare.h: a sentencepiece model trained on the sample, or the
 * tokenizer of --tokenizer. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/tokens/sentencepiece_train.h"
#include "trainer/tokens/tokenizer.h"

/* The sample's lines, in the order of the documents. */
struct sentences {
    struct prepare *prepare;
    int part;
    struct part_reader *reader;
    int64_t document; /* number of the reader's next document */
    struct buffer text;
    size_t at;
    uint64_t given;
};

/* 1: text has the next document of the sample; 0: there are no more. */
static int next_document(struct sentences *s, struct muster_error *err)
{
    struct prepare *p = s->prepare;
    for (;;) {
        struct part_record record;
        if (!s->reader && s->part == p->parts)
            return 0;
        if (!s->reader && !(s->reader = prepare_open_part(p, s->part, err)))
            return -1;
        s->document = s->document < p->part[s->part].document ? p->part[s->part].document : s->document;
        const int found = part_reader_next(s->reader, &record, NULL, err);
        if (found < 0)
            return -1;
        if (!found) {
            part_reader_close(take_pointer(&s->reader));
            s->part++;
            continue;
        }
        if (p->decision[s->document++] & DECISION_SAMPLED) {
            s->at = 0;
            return part_reader_text(s->reader, &record, &s->text, err) < 0 ? -1 : 1;
        }
    }
}

/* Bytes that become a sentence: all `length`, or up to the last blank or character that fits. */
static size_t take_bytes(const char *text, size_t length)
{
    if (length <= SENTENCEPIECE_SENTENCE)
        return length;
    const char *blank = memrchr(text + 1, ' ', SENTENCEPIECE_SENTENCE - 1);
    size_t cut = blank ? (size_t)(blank - text) : SENTENCEPIECE_SENTENCE;
    while (!blank && cut > 1 && ((unsigned char)text[cut] & 0xC0) == 0x80)
        cut--;
    return cut;
}

static int next_sentence(void *context, const char **text, size_t *length, struct muster_error *err)
{
    struct sentences *s = context;
    for (;;) {
        if (s->at >= s->text.length) {
            const int found = next_document(s, err);
            if (found <= 0)
                return found;
        }
        const char *from = s->text.data + s->at, *end = memchr(from, '\n', s->text.length - s->at);
        const size_t line = end ? (size_t)(end - from) : s->text.length - s->at,
                     taken = take_bytes(from, line);
        s->at += taken + (taken == line);
        if (taken) {
            *text = from;
            *length = taken;
            s->given++;
            return 1;
        }
    }
}

static int train_model(struct prepare *p, const char *path, struct muster_error *err)
{
    struct sentences sentences = {.prepare = p};
    scope_buffer model = {0};
    const struct sentencepiece_training training = {.bpe = p->settings->model_type == CORPUS_BPE,
                                                    .vocabulary = p->settings->vocabulary,
                                                    .coverage = p->settings->character_coverage,
                                                    .next = next_sentence,
                                                    .context = &sentences};
    const int result = sentencepiece_train(&training, &model, err);
    part_reader_close(sentences.reader);
    buffer_free(&sentences.text);
    return result < 0 ? -1 : io_write_file_atomic(path, model.data, model.length, 0644, err);
}

/* ---- the model, kept for a later run ---- */

static uint64_t model_key(const struct prepare *p)
{
    const struct corpus_settings *s = p->settings;
    uint64_t hash = text_hash(p->decided, &s->model_type, sizeof s->model_type);
    hash = text_hash(hash, &s->vocabulary, sizeof s->vocabulary);
    return text_hash(hash, &s->character_coverage, sizeof s->character_coverage);
}

/* The key file has "KEY FINGERPRINT": the model file with this fingerprint was made for this key. */
static bool has_model(const struct prepare *p, const char *key_path, const char *path)
{
    scope_buffer text = {0};
    unsigned long long key, fingerprint;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = NULL;
    if (io_read_file(key_path, 256, &text, NULL) < 0 || !text.data ||
        sscanf(text.data, "%llx %llx", &key, &fingerprint) != 2 || key != model_key(p))
        return false;
    tokenizer = tokenizer_open(path, NULL);
    return tokenizer && tokenizer_fingerprint(tokenizer) == fingerprint;
}

static int make_model(struct prepare *p, const char *path, struct muster_error *err)
{
    scope_free char *key_path = prepare_path(p, "tokenizer.key");
    char text[64];
    if (!key_path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (has_model(p, key_path, path))
        return 0;
    if (train_model(p, path, err) < 0)
        return -1;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(path, err);
    if (!tokenizer)
        return -1;
    (void)snprintf(text, sizeof text, "%016llx %016llx\n", (unsigned long long)model_key(p),
                   (unsigned long long)tokenizer_fingerprint(tokenizer));
    return io_write_file_atomic(key_path, text, strlen(text), 0644, err);
}

static int open_result(struct prepare *p, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(p->tokenizer, err);
    if (!tokenizer)
        return -1;
    p->vocabulary = tokenizer_vocabulary(tokenizer);
    p->fingerprint = tokenizer_fingerprint(tokenizer);
    p->end = tokenizer_special(tokenizer).eos;
    log_info(p->log, "tokenizer: %s, %lld tokens", tokenizer_kind(tokenizer), (long long)p->vocabulary);
    return *p->settings->tokenizer ? tokenizer_copy(tokenizer, p->settings->output, err) : 0;
}

int prepare_train(struct prepare *p, struct muster_error *err)
{
    const struct corpus_settings *s = p->settings;
    const bool trains = !*s->tokenizer && s->tokenizer_type == CORPUS_SENTENCEPIECE;
    p->tokenizer = trains          ? mem_printf("%s/tokenizer.model", s->output)
                   : *s->tokenizer ? mem_strdup(s->tokenizer)
                                   : mem_strdup("bytes");
    if (!p->tokenizer)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (trains && make_model(p, p->tokenizer, err) < 0)
        return -1;
    if (open_result(p, err) < 0)
        return -1;
    if (trains && p->vocabulary < s->vocabulary)
        log_info(p->log, "tokenizer: the texts have no more pieces than that; --vocab_size is %lld",
                 (long long)s->vocabulary);
    return 0;
}
