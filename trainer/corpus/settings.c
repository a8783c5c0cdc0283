/* settings.c - see prepare.h. */
#include "trainer/corpus/prepare.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/knob_args.h"
#include "proto/base/text.h"

#define SECTION_TOKENS "Tokens"
#define AT(member)     KNOB_OFFSET(corpus_settings, member)

static const char *const tokenizer_types[] = {"sentencepiece", "bytes", NULL};
static const char *const model_types[] = {"unigram", "bpe", NULL};

static const struct knob knobs[] = {
    {.name = "input_dir",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(input),
     .initial = "data/raw",
     .section = "Files",
     .help = "File or folder to read, with its sub-folders. A text file is a document, and so is a record of "
             "JSON, CSV, TSV, Parquet or Arrow. All may be compressed by gzip or zstd."},
    {.name = "output_dir",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(output),
     .initial = "data/processed",
     .section = "Files",
     .help = "Folder of the result, for data.path of muster-train: token shards (train, validation), "
             "tokenizer.model, index.json and report.json."},
    {.name = "text_key",
     .type = KNOB_TEXT,
     .offset = AT(text_key),
     .initial = "text",
     .section = "Files",
     .help = "Key of the text in a record of JSON, or column of a table."},
    {.name = "chat_template",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(chat_template),
     .initial = "",
     .section = "Files",
     .help = "Makes a text of each chat (messages, conversations, instruction and output), of which the "
             "assistant's turns are trained on: "
             "chatml, a file of Jinja, or auto for the template in the folder of --tokenizer. Empty: chats "
             "are refused."},
    {.name = "separator",
     .type = KNOB_TEXT,
     .offset = AT(separator),
     .initial = "",
     .section = "Files",
     .help = "Line of a text file that ends a document, such as % in files of fortune. Empty: a file is one "
             "document."},
    {.name = "max_document_bytes",
     .type = KNOB_BYTES,
     .offset = AT(max_document_bytes),
     .initial = "1M",
     .min = 1024,
     .max = 1 << 28,
     .section = "Files",
     .help = "Size above which a text is cut into several documents, each at the last line end before it."},
    {.name = "workers",
     .type = KNOB_INT,
     .offset = AT(workers),
     .initial = "0",
     .min = 0,
     .max = 1024,
     .section = "Files",
     .help = "Number of threads, on which the result does not depend. 0: as many as processors."},
    {.name = "part_bytes",
     .type = KNOB_BYTES,
     .offset = AT(part_bytes),
     .initial = "8M",
     .min = 1024,
     .max = 1e12,
     .section = "Files",
     .help = "Bytes of small files that a worker reads at a time. A larger file is read by one worker."},
    {.name = "keep_work",
     .type = KNOB_BOOL,
     .offset = AT(keep_work),
     .initial = "false",
     .implied = "true",
     .section = "Files",
     .help = "Keeps output_dir/.work: the texts and signatures of parts of the input. A later run with more "
             "files or other settings then reads only the changed parts."},
#define RULE_KNOB(id, name_, bound, limit, least, largest, help_)                                            \
    {.name = name_,                                                                                          \
     .type = KNOB_DOUBLE,                                                                                    \
     .offset = AT(limits) + RULE_##id * sizeof(double),                                                      \
     .initial = limit,                                                                                       \
     .min = least,                                                                                           \
     .max = largest,                                                                                         \
     .section = "Rules (a document that breaks a rule is dropped, and counted in the report)",               \
     .help = help_},
    CORPUS_RULES(RULE_KNOB)
#undef RULE_KNOB
        {.name = "blocked_words",
         .type = KNOB_TEXT,
         .text = KNOB_PATH,
         .offset = AT(blocked_words),
         .initial = "",
         .section = "Lists",
         .help = "File of words, one a line, which --max-blocked-words counts."},
    {.name = "required_words",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(required_words),
     .initial = "",
     .section = "Lists",
     .help = "File of words, one a line (the, of, and, ...), which --min-required-words counts."},
    {.name = "languages",
     .type = KNOB_TEXT,
     .offset = AT(languages),
     .initial = "",
     .section = "Lists",
     .help = "Languages to keep, such as en,de. libexttextcat finds a language by n-grams of characters. A "
             "text that is too short for it is kept."},
    {.name = "language_data",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(language_data),
     .initial = "/usr/share/libexttextcat",
     .section = "Lists",
     .help = "Folder with fpdb.conf and the n-grams of languages (the package libexttextcat-data)."},
    {.name = "near_threshold",
     .type = KNOB_DOUBLE,
     .offset = AT(near_threshold),
     .initial = "0.8",
     .min = 0.5,
     .max = 2,
     .section = "Duplicates (of equal texts the first is kept, always)",
     .help = "Drops a text whose runs of 5 words have this Jaccard similarity, or more, to the runs of an "
             "earlier text. Above 1: drops none."},
    {.name = "tokenizer_type",
     .type = KNOB_CHOICE,
     .offset = AT(tokenizer_type),
     .initial = "sentencepiece",
     .choices = tokenizer_types,
     .section = SECTION_TOKENS,
     .help = "Kind of tokenizer that is trained on the documents. bytes needs no training."},
    {.name = "model_type",
     .type = KNOB_CHOICE,
     .offset = AT(model_type),
     .initial = "unigram",
     .choices = model_types,
     .section = SECTION_TOKENS,
     .help = "Kind of the sentencepiece model."},
    {.name = "vocab_size",
     .type = KNOB_INT,
     .offset = AT(vocabulary),
     .initial = "50000",
     .min = 300,
     .max = 1000000,
     .section = SECTION_TOKENS,
     .help = "Pieces of the model, 256 bytes included. A small text gets fewer."},
    {.name = "character_coverage",
     .type = KNOB_DOUBLE,
     .offset = AT(character_coverage),
     .initial = "0.9995",
     .min = 0.9,
     .max = 1,
     .section = SECTION_TOKENS,
     .help = "Share of the characters that are pieces. Other characters are written as bytes."},
    {.name = "sample_bytes",
     .type = KNOB_BYTES,
     .offset = AT(sample_bytes),
     .initial = "64M",
     .min = 65536,
     .max = 1e12,
     .section = SECTION_TOKENS,
     .help = "Bytes of the documents that train the model. They are chosen by their hash."},
    {.name = "tokenizer",
     .type = KNOB_TEXT,
     .text = KNOB_PATH,
     .offset = AT(tokenizer),
     .initial = "",
     .section = SECTION_TOKENS,
     .help = "Tokenizer that is used in place of a new one: a file or folder, as data.tokenizer takes it."},
    {.name = "validation_share",
     .type = KNOB_DOUBLE,
     .offset = AT(validation_share),
     .initial = "0.01",
     .min = 0,
     .max = 0.9,
     .section = SECTION_TOKENS,
     .help = "Share of the documents that is held out. They are chosen by their hash."},
    {.name = "shard_tokens",
     .type = KNOB_INT,
     .offset = AT(shard_tokens),
     .initial = "100000000",
     .min = 1024,
     .max = 2000000000,
     .section = SECTION_TOKENS,
     .help = "Most tokens of a shard. A shard ends with a document."},
    KNOB_HELP_ROW(AT(help), "Other"),
};
static const struct knob_table table = {knobs, sizeof knobs / sizeof *knobs};

const struct knob_table *corpus_settings_table(void)
{
    return &table;
}

static int check_settings(const struct corpus_settings *s, struct muster_error *err)
{
    if (!*s->input || !*s->output)
        return error_set(err, MUSTER_E_INVALID, "--%s is empty", *s->input ? "output_dir" : "input_dir");
    if (strchr(s->separator, '\n'))
        return error_set(err, MUSTER_E_INVALID, "--separator has more than one line");
    if (*s->tokenizer && s->tokenizer_type == CORPUS_BYTES)
        return error_set(err, MUSTER_E_INVALID, "--tokenizer %s and --tokenizer_type=bytes: one of the two",
                         s->tokenizer);
    return 0;
}

int corpus_settings_parse(struct corpus_settings *s, int argc, char *const argv[], struct muster_error *err)
{
    int at = 0;
    if (knob_defaults(&table, s, err) < 0 ||
        knob_parse_flags(&table, s, NULL, argc, argv, &at, &s->help, err) < 0)
        return -1;
    if (s->help)
        return 0;
    if (at < argc)
        return error_set(err, MUSTER_E_INVALID,
                         "'%s' is no flag; folders are named by --input_dir and --output_dir", argv[at]);
    return check_settings(s, err);
}

void corpus_settings_free(struct corpus_settings *s)
{
    if (s)
        knob_free(&table, s);
}

/* Whether a setting cannot change the result: paths, the number of threads. */
static bool is_about_place(const struct knob *knob)
{
    static const size_t places[] = {AT(input),         AT(output),         AT(workers),       AT(keep_work),
                                    AT(blocked_words), AT(required_words), AT(language_data), AT(help)};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (knob->offset == places[i])
            return true;
    return false;
}

uint64_t corpus_settings_hash(const struct corpus_settings *s, bool tokens)
{
    uint64_t hash = TEXT_HASH_START;
    struct buffer text = {0};
    for (size_t i = 0; i < table.count; i++) {
        if (is_about_place(&knobs[i]) || (!tokens && !strcmp(knobs[i].section, SECTION_TOKENS)))
            continue;
        buffer_clear(&text);
        (void)knob_format(&knobs[i], s, &text); /* no memory: another hash, and the work is done again */
        hash = text_hash(text_hash(hash, knobs[i].name, strlen(knobs[i].name) + 1),
                         text.data ? text.data : "", text.length);
    }
    buffer_free(&text);
    return hash;
}
