/* sentencepiece_train.c - see sentencepiece_train.h. */
#include "trainer/tokens/sentencepiece_train.h"

#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/library.h"
#include "trainer/tokens/sentencepiece.h"

enum { REASON = 320 };

struct train_calls {
    __typeof__(&muster_sentencepiece_train) train;
};
static const struct library_function functions[] = {
    {"muster_sentencepiece_train", offsetof(struct train_calls, train), false, NULL}};
static const struct library module = {
    .file = SENTENCEPIECE_MODULE,
    .needs = "training a sentencepiece model needs the module of muster for it, which is built where "
             "libsentencepiece-dev and a C++ compiler are, and libsentencepiece0",
    .functions = functions,
    .count = sizeof functions / sizeof *functions,
};

/* Where an error of the sentences is kept while the library ends. */
struct reading {
    const struct sentencepiece_training *training;
    struct muster_error *err;
    bool failed;
};

static int next_sentence(void *context, const char **text, size_t *length)
{
    struct reading *r = context;
    const int result = r->training->next(r->training->context, text, length, r->err);
    r->failed = r->failed || result < 0;
    return result;
}

static int take_model(void *context, const char *bytes, size_t length)
{
    return buffer_append(context, bytes, length);
}

int sentencepiece_train(const struct sentencepiece_training *training, struct buffer *out,
                        struct muster_error *err)
{
    struct train_calls calls = {0};
    struct reading reading = {.training = training, .err = err};
    char vocabulary[32], coverage[32], longest[32], reason[REASON] = "";
    if (library_load(&module, &calls, NULL, err) < 0)
        return -1;
    (void)snprintf(vocabulary, sizeof vocabulary, "%lld", (long long)training->vocabulary);
    (void)snprintf(coverage, sizeof coverage, "%.9g", training->coverage);
    (void)snprintf(longest, sizeof longest, "%d", SENTENCEPIECE_SENTENCE);
    const char *const options[] = {"model_type",
                                   training->bpe ? "bpe" : "unigram",
                                   "vocab_size",
                                   vocabulary,
                                   "character_coverage",
                                   coverage,
                                   "max_sentence_length",
                                   longest,
                                   "hard_vocab_limit",
                                   "false",
                                   "byte_fallback",
                                   "true",
                                   "normalization_rule_name",
                                   "identity",
                                   "remove_extra_whitespaces",
                                   "false",
                                   "num_threads",
                                   "4", /* sums are added by threads: another number is another model */
                                   "minloglevel",
                                   "2",
                                   NULL};
    if (!calls.train(options, next_sentence, &reading, take_model, out, reason, sizeof reason))
        return 0;
    if (reading.failed)
        return -1;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_INVALID,
                     "sentencepiece cannot train a model of --vocab_size %lld on these texts: %s",
                     (long long)training->vocabulary, out->failed ? "no memory" : reason);
}
