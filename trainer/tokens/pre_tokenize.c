/* pre_tokenize.c - see parts.h: the pre_tokenizer of a tokenizer.json, a list of steps. Each step cuts the
 * pieces of the step before it. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/parts.h"

int pre_tokenizer_add(struct pre_tokenizer *p, const struct pre_step *step, struct muster_error *err)
{
    if (p->count == PRE_STEPS) {
        finder_destroy(step->finder);
        return error_set(err, MUSTER_E_INVALID, "the pre_tokenizer has too many parts");
    }
    p->step[p->count++] = *step;
    return 0;
}

void pre_tokenizer_free(struct pre_tokenizer *p)
{
    for (int i = 0; i < p->count; i++)
        finder_destroy(p->step[i].finder);
    *p = (struct pre_tokenizer){0};
}

bool pre_tokenizer_cuts_lines(const struct pre_tokenizer *p)
{
    bool cuts = false;
    for (int i = 0; i < p->count; i++) {
        if (p->step[i].kind != PRE_SPLITTER)
            return false;
        cuts = cuts || (p->step[i].split != split_digits && p->step[i].split != split_numbers &&
                        p->step[i].split != split_marks);
    }
    return cuts;
}

/* ---- reading ---- */

static int add_step(const struct part_reader *r, struct pre_tokenizer *p, struct pre_step step)
{
    return pre_tokenizer_add(p, &step, r->err) < 0 ? error_wrap(r->err, "%s", r->path) : 0;
}

static int add_splitter(const struct part_reader *r, struct pre_tokenizer *p, splitter split)
{
    return add_step(r, p, (struct pre_step){.kind = PRE_SPLITTER, .split = split});
}

static int add_classes(struct pre_tokenizer *p, unsigned classes, enum pre_behaviour behaviour,
                       struct muster_error *err)
{
    const struct pre_step step = {
        .kind = PRE_FIND, .finder = finder_of_classes(classes, err), .behaviour = behaviour};
    return step.finder ? pre_tokenizer_add(p, &step, err) : -1;
}

int pre_tokenizer_add_bert(struct pre_tokenizer *p, struct muster_error *err)
{
    return add_classes(p, UNICODE_BLANK, PRE_REMOVED, err) < 0
               ? -1
               : add_classes(p, UNICODE_PUNCTUATION, PRE_ISOLATED, err);
}

static int read_behaviour(const struct part_reader *r, const json_t *part, enum pre_behaviour *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name = json_string_value(json_object_get(part, "behavior"));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum pre_behaviour)i;
            return 0;
        }
    return part_refuse(r, "pre_tokenizer", part);
}

static int read_split(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p)
{
    struct pre_step step = {.kind = PRE_FIND};
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (part_flag(r, part, "invert", -1, &step.inverted) < 0 || read_behaviour(r, part, &step.behaviour) < 0)
        return -1;
    /* a known expression matches everything */
    if (regex && json_object_size(pattern) == 1 &&
        step.behaviour == (step.inverted ? PRE_REMOVED : PRE_ISOLATED) &&
        (step.split = split_by_pattern(regex)))
        step.kind = PRE_SPLITTER;
    else if (!(step.finder = finder_read(r, pattern, part)))
        return -1;
    return add_step(r, p, step);
}

static int read_byte_level(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p)
{
    bool cuts, prefix, trims;
    if (part_flag(r, part, "add_prefix_space", 0, &prefix) < 0 ||
        part_flag(r, part, "trim_offsets", 1, &trims) < 0 || part_flag(r, part, "use_regex", 1, &cuts) < 0)
        return -1;
    if (prefix && add_step(r, p, (struct pre_step){.kind = PRE_BLANK}) < 0)
        return -1;
    if (cuts && add_splitter(r, p, split_gpt2) < 0)
        return -1;
    return add_step(r, p, (struct pre_step){.kind = PRE_ALPHABET});
}

/* Metaspace: blanks as in sentencepiece. Older files have add_prefix_space alone. */
static int read_metaspace(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p)
{
    static const struct {
        const char *name;
        enum normalize_prefix prefix;
    } schemes[] = {{"always", NORMALIZE_ABSENT}, {"first", NORMALIZE_FIRST}, {"never", NORMALIZE_NONE}};
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const char *mark = json_string_value(json_object_get(part, "replacement")),
               *name = json_string_value(scheme);
    struct pre_step step = {.kind = PRE_MARK, .prefix = NORMALIZE_ABSENT};
    bool splits, prefix;
    size_t i = 0;
    if (!mark || strcmp(mark, NORMALIZE_MARK) != 0 || (scheme && !name))
        return part_refuse(r, "pre_tokenizer", part);
    if (part_flag(r, part, "split", 1, &splits) < 0 || part_flag(r, part, "add_prefix_space", 1, &prefix) < 0)
        return -1;
    while (name && i < 3 && strcmp(name, schemes[i].name) != 0)
        i++;
    if (i == 3 || (!prefix && schemes[i].prefix != NORMALIZE_NONE)) /* they contradict each other */
        return part_refuse(r, "pre_tokenizer", part);
    step.prefix = schemes[i].prefix;
    return add_step(r, p, step) < 0 ? -1 : splits ? add_splitter(r, p, split_marks) : 0;
}

static int read_char_delimiter(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p)
{
    const char *text = json_string_value(json_object_get(part, "delimiter"));
    if (!text || !*text || unicode_next(text, strlen(text)).length != strlen(text))
        return part_refuse(r, "pre_tokenizer", part);
    struct finder *finder = finder_of_text(text, r->err);
    return finder ? add_step(r, p, (struct pre_step){.kind = PRE_FIND, .finder = finder}) : -1;
}

static int read_simple(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p)
{
    const char *type = part_type(part);
    bool each;
    if (!strcmp(type, "Digits"))
        return part_flag(r, part, "individual_digits", -1, &each) < 0
                   ? -1
                   : add_splitter(r, p, each ? split_digits : split_numbers);
    if (!strcmp(type, "Whitespace"))
        return add_step(r, p, (struct pre_step){.kind = PRE_WORDS, .split = split_runs});
    if (!strcmp(type, "WhitespaceSplit"))
        return add_classes(p, UNICODE_BLANK, PRE_REMOVED, r->err);
    if (!strcmp(type, "BertPreTokenizer"))
        return pre_tokenizer_add_bert(p, r->err);
    if (!strcmp(type, "Punctuation")) {
        enum pre_behaviour behaviour = PRE_ISOLATED;
        if (json_object_get(part, "behavior") && read_behaviour(r, part, &behaviour) < 0)
            return -1;
        return add_classes(p, UNICODE_PUNCTUATION, behaviour, r->err);
    }
    if (!strcmp(type, "CharDelimiterSplit"))
        return read_char_delimiter(r, part, p);
    if (!strcmp(type, "Metaspace"))
        return read_metaspace(r, part, p);
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(r, part, p);
    return strcmp(type, "Split") != 0 ? part_refuse(r, "pre_tokenizer", part) : read_split(r, part, p);
}

static int read_parts(const struct part_reader *r, const json_t *part, struct pre_tokenizer *p, int depth)
{
    const json_t *parts = json_object_get(part, "pretokenizers"), *each;
    size_t i;
    if (strcmp(part_type(part), "Sequence") != 0 || !json_is_array(parts) || depth > 8)
        return read_simple(r, part, p);
    json_array_foreach(parts, i, each)
    {
        if (read_parts(r, each, p, depth + 1) < 0)
            return -1;
    }
    return 0;
}

int pre_tokenizer_read(const struct part_reader *r, const json_t *part, struct pre_tokenizer *out)
{
    if (part && !json_is_null(part) && read_parts(r, part, out, 0) < 0)
        return -1;
    out->bytes = out->count && out->step[out->count - 1].kind == PRE_ALPHABET;
    for (int i = 0; i + 1 < out->count; i++)
        if (out->step[i].kind == PRE_ALPHABET)
            out->bytes = false; /* letters of letters: nobody means that, and it works too */
    out->count -= out->bytes;
    return 0;
}

/* ---- cutting ---- */

struct cutting {
    const struct pre_tokenizer *p;
    pre_word word;
    void *context;
    struct muster_error *err;
};

static int cut_from(const struct cutting *c, int at, bool first, const char *text, size_t length);

static int cut_by_splitter(const struct cutting *c, int at, bool first, const char *text, size_t length)
{
    const struct pre_step *step = &c->p->step[at];
    for (size_t from = 0, word; from < length; from += word) {
        word = step->split(text + from, length - from);
        if (step->kind == PRE_WORDS && (unicode_next(text + from, length - from).classes & UNICODE_BLANK))
            continue;
        if (cut_from(c, at + 1, first && !from, text + from, word) < 0)
            return -1;
    }
    return 0;
}

/* Elements are the matches and the texts between them; a behaviour joins some of them into pieces. */
struct joining {
    const struct cutting *c;
    int at;
    bool first;
    const char *text;
    size_t begin, end; /* the piece that is not given on yet; equal: none */
    bool open;         /* there is such a piece, which may be empty */
    bool last_matched;
};

static int give_piece(struct joining *j)
{
    const size_t begin = j->begin;
    const bool empty = !j->open || begin == j->end;
    j->open = false;
    return empty ? 0 : cut_from(j->c, j->at + 1, j->first && !begin, j->text + begin, j->end - begin);
}

static int add_element(struct joining *j, size_t begin, size_t end, bool matched)
{
    const struct pre_step *step = &j->c->p->step[j->at];
    const bool last = j->last_matched;
    matched = matched != step->inverted;
    j->last_matched = matched;
    bool joins = false;
    switch (step->behaviour) {
    case PRE_REMOVED:
        if (matched)
            return 0;
        break;
    case PRE_ISOLATED:
        break;
    case PRE_MERGED_BEFORE:
        joins = matched && !last;
        break;
    case PRE_MERGED_AFTER:
        joins = !matched && last;
        break;
    case PRE_CONTIGUOUS:
        joins = matched == last;
        break;
    }
    if (joins && j->open) {
        j->end = end;
        return 0;
    }
    if (give_piece(j) < 0)
        return -1;
    j->begin = begin;
    j->end = end;
    j->open = true;
    return 0;
}

static int cut_by_finder(const struct cutting *c, int at, bool first, const char *text, size_t length)
{
    struct joining j = {.c = c, .at = at, .first = first, .text = text};
    struct search search;
    size_t from = 0, begin = 0, end = 0;
    int found = finder_begin(c->p->step[at].finder, text, length, &search, c->err) < 0 ? -1 : 1;
    while (found > 0 && (found = finder_next(&search, &begin, &end, c->err)) > 0) {
        if ((begin > from && add_element(&j, from, begin, false) < 0) ||
            add_element(&j, begin, end, true) < 0)
            found = -1;
        from = end;
    }
    finder_end(&search);
    if (found < 0 || (from < length && add_element(&j, from, length, false) < 0))
        return -1;
    return give_piece(&j);
}

static int cut_changed(const struct cutting *c, int at, bool first, const char *text, size_t length)
{
    const struct pre_step *step = &c->p->step[at];
    scope_buffer changed = {0};
    if (step->kind == PRE_MARK) {
        normalize_blanks(step->prefix, first, text, length, &changed);
    } else if (step->kind == PRE_ALPHABET) {
        alphabet_letters(text, length, &changed);
    } else {
        if (text[0] == ' ')
            return cut_from(c, at + 1, first, text, length);
        (void)buffer_text(&changed, " "); /* changed remembers a failure */
        (void)buffer_append(&changed, text, length);
    }
    if (changed.failed)
        return error_set(c->err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    return cut_from(c, at + 1, first, changed.data, changed.length);
}

static int cut_from(const struct cutting *c, int at, bool first, const char *text, size_t length)
{
    if (at == c->p->count)
        return c->word(c->context, text, length, c->err);
    switch (c->p->step[at].kind) {
    case PRE_SPLITTER:
    case PRE_WORDS:
        return cut_by_splitter(c, at, first, text, length);
    case PRE_FIND:
        return cut_by_finder(c, at, first, text, length);
    default:
        return cut_changed(c, at, first, text, length);
    }
}

int pre_tokenize(const struct pre_tokenizer *p, bool first, const char *text, size_t length, pre_word word,
                 void *context, struct muster_error *err)
{
    const struct cutting c = {p, word, context, err};
    return length ? cut_from(&c, 0, first, text, length) : 0;
}
