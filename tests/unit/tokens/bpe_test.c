/* A tokenizer.json, read strictly, and the words by it. */
#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "trainer/tokens/bpe.h"
#include "trainer/tokens/unicode.h"

/* "\u0120" is GPT-2's letter for a blank. */
#define WORDS  "{\"a\":0,\"b\":1,\"c\":2,\"\\u0120\":3,\"ab\":4,\"\\u0120a\":5,\"\\u0120ab\":6,\"abc\":7}"
#define MERGES "[\"a b\",[\"\\u0120\",\"ab\"],\"\\u0120 a\"]"
#define PRE    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define ADDED                                                                                                \
    "[{\"id\":8,\"content\":\"<e>\",\"normalized\":false,\"rstrip\":true},{\"id\":9,\"content\":\"<e>>\"}]"

/* A tokenizer.json of these parts; extra stands in front of its model's. */
static const char *json_of(const char *pre, const char *extra, const char *added)
{
    static char text[2000];
    (void)snprintf(
        text, sizeof text,
        "{\"normalizer\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":%s,\"added_tokens\":%s,"
        "\"model\":{\"type\":\"BPE\",%s\"vocab\":" WORDS ",\"merges\":" MERGES "}}",
        pre, added, extra);
    return text;
}

static struct bpe *parse(const char *text, struct muster_error *err)
{
    return bpe_parse_json("t.json", text, strlen(text), err);
}

static void assert_ids(struct bpe *bpe, const char *text, const int32_t *ids, size_t count)
{
    scope_token_list found = {0};
    assert_int_equal(bpe_ops.encode(bpe, text, strlen(text), &found, NULL), 0);
    assert_int_equal(found.count, count);
    if (count)
        assert_memory_equal(found.tokens, ids, count * sizeof *ids);
}
#define ASSERT_IDS(bpe, text, ...)                                                                           \
    assert_ids(bpe, text, (const int32_t[]){__VA_ARGS__},                                                    \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void words_become_tokens(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct bpe *bpe = parse(json_of(PRE, "", ADDED), &err);
    if (!bpe)
        fail_msg("%s", err.text);
    ASSERT_IDS(bpe, "ab", 4);
    ASSERT_IDS(bpe, "abc ab", 4, 2, 6);             /* abc is a token that no merge makes */
    ASSERT_IDS(bpe, "abc ab", 4, 2, 6);             /* from the words seen */
    ASSERT_IDS(bpe, "a<e>  b<e>>c", 0, 8, 1, 9, 2); /* the longest; blanks after <e> are part of it */
    ASSERT_IDS(bpe, "axb", 4); /* a byte that is no token is left out where there is no unk_token */
    assert_int_equal(bpe_ops.vocabulary(bpe), 10);
    scope_buffer text = {0};
    assert_int_equal(bpe_ops.decode(bpe, (const int32_t[]){4, 6, 8}, 3, &text, &err), 0);
    assert_string_equal(text.data, "ab ab<e>");
    bpe_destroy(bpe);
    bpe_destroy(NULL);
}

/* The parts of a cut text have together the ids of the text, with every pattern. */
static void a_cut_changes_no_id(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        PRE,
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":false}," PRE
        "]}",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"invert\":false,\"behavior\":"
        "\"Isolated\",\"pattern\":"
        "{"
        "\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
        " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":"
        "\"ByteLevel\",\"use_regex\":false}]}"};
    static const char letters[] = "aab b\n\nc'st1(\t<e> \xC3\xA9";
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        struct muster_error err = {0};
        unsigned random = 1;
        char text[600];
        /* a token for every byte, so that a wrong cut shows */
        struct bpe *bpe =
            parse(json_of(patterns[p], "\"unk_token\":\"c\",\"ignore_merges\":true,", ADDED), &err);
        if (!bpe)
            fail_msg("%s", err.text);
        for (size_t i = 0; i < sizeof text; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = letters[(random >> 16) % (sizeof letters - 1)];
        }
        scope_token_list whole = {0};
        assert_int_equal(bpe_ops.encode(bpe, text, sizeof text, &whole, &err), 0);
        for (size_t most = 1; most < sizeof text; most += 7) {
            scope_token_list parts = {0};
            for (size_t from = 0; from < sizeof text;) {
                const size_t left = sizeof text - from,
                             part = left <= most ? left : bpe_ops.cut(bpe, text + from, left, most);
                assert_in_range(part, 1, left);
                assert_int_equal(bpe_ops.encode(bpe, text + from, part, &parts, &err), 0);
                from += part;
            }
            assert_int_equal(parts.count, whole.count);
            assert_memory_equal(parts.tokens, whole.tokens, whole.count * sizeof *whole.tokens);
        }
        assert_in_range(bpe_ops.cut(bpe, text, sizeof text, 100), 1, 300); /* it is cut at all */
        bpe_destroy(bpe);
    }
    struct bpe *bpe = parse(json_of("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "", "[]"), NULL);
    assert_int_equal(bpe_ops.cut(bpe, "a\nb\na", 5, 2), 5); /* a blank before each part: nowhere */
    bpe_destroy(bpe);
}

static void settings_count(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct bpe *bpe = parse(json_of(PRE, "\"ignore_merges\":true,\"unk_token\":\"c\",", "[]"), &err);
    assert_non_null(bpe);
    ASSERT_IDS(bpe, "abc", 7);
    ASSERT_IDS(bpe, "aXb", 0, 2, 1);
    bpe_destroy(bpe);
    bpe = parse(json_of("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "", "[]"), &err);
    assert_non_null(bpe);
    ASSERT_IDS(bpe, "ab ab", 6, 6);
    ASSERT_IDS(bpe, " ab", 6);
    bpe_destroy(bpe);
}

/* Words of characters, as Llama has them: "_" stands for U+2581 below. */
#define CHARS                                                                                                \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"\\u2581\":3,\"\\u2581a\":4,\"ab\":5,\"b\\u2581\":6,"           \
    "\"<0xC3>\":7,\"<0xA9>\":8,\"\\u00e8\":9},\"merges\":[\"a b\",\"\\u2581 a\",\"b \\u2581\"]"

static struct bpe *parse_chars(const char *parts, const char *settings)
{
    static char text[1000];
    struct muster_error err = {0};
    (void)snprintf(
        text, sizeof text,
        "{%s,\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Metaspace\",\"replacement\":\"\u2581\"},{\"type\":\"Fuse\"}]},\"added_tokens\":[{\"id\":0,"
        "\"content\":\"<unk>\",\"normalized\":false}],"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",%s" CHARS "}}",
        parts, settings);
    struct bpe *bpe = parse(text, &err);
    if (!bpe)
        fail_msg("%s", err.text);
    return bpe;
}

static void words_of_characters(void **state)
{
    (void)state;
    static const char space[] = "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
                                "\"prepend_scheme\":\"first\",\"split\":false}",
                      early[] =
                          "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                          "\"prepend\":\"\\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                          "\"content\":\"\\u2581\"}]}";
    struct bpe *bpe = parse_chars(space, "\"byte_fallback\":true,\"fuse_unk\":true,");
    ASSERT_IDS(bpe, "a a", 4, 4);
    ASSERT_IDS(bpe, " a", 4);             /* it begins with one */
    ASSERT_IDS(bpe, "ab ab", 3, 5, 3, 5); /* "a b" is the lowest */
    ASSERT_IDS(bpe, "b b", 3, 6, 2);      /* a token goes on over a blank: words are not cut there */
    ASSERT_IDS(bpe, "a<unk>a", 4, 0, 1);  /* the first piece alone gets one */
    ASSERT_IDS(bpe, "\xC3\xA9\xC3\xA8xyz", 3, 7, 8, 9, 0); /* by its bytes; known; three that are not */
    scope_buffer text = {0};
    struct muster_error err = {0};
    assert_int_equal(bpe_ops.decode(bpe, (const int32_t[]){4, 4, 7, 8}, 4, &text, &err), 0);
    assert_int_equal(text.length, 5);
    assert_memory_equal(text.data, "a a\xC3\xA9", 5);
    bpe_destroy(bpe);
    bpe = parse_chars(early, "");
    ASSERT_IDS(bpe, " a", 3, 4);
    ASSERT_IDS(bpe, "a<unk>a", 4, 0, 4);
    ASSERT_IDS(bpe, "xyz", 3, 0, 0, 0);
    bpe_destroy(bpe);
    /* Gemma's Split at blanks finds none after the normalizer */
    bpe = parse_chars("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
                      "\"MergedWithPrevious\",\"invert\":false},\"normalizer\":{\"type\":\"Replace\","
                      "\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}",
                      "");
    ASSERT_IDS(bpe, "a a", 1, 4);
    bpe_destroy(bpe);
}

/* As in Llama's files of 2023: the mark that Prepend puts in front is part of the searched text. */
static void added_tokens_are_normalized(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct bpe *bpe = parse(
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
        "\"\\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
        "\"pre_tokenizer\":null,\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"normalized\":true}],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u2581\":1,\"<\":2,\"s\":3,\">\":4,\"<s>\":5},"
        "\"merges\":[]}}",
        &err);
    if (!bpe)
        fail_msg("%s", err.text);
    ASSERT_IDS(bpe, "<s>a", 5, 0);
    ASSERT_IDS(bpe, "a <s>", 1, 0, 5);
    ASSERT_IDS(bpe, "a<s>", 1, 0, 2, 3, 4); /* no mark before it */
    bpe_destroy(bpe);
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *extra, *added, *says;
    } cases[] = {
        {PRE, "\"dropout\":0.1,", "[]", "model.dropout 0.1"},
        {PRE, "\"byte_fallback\":1,", "[]", "byte_fallback of the model BPE is not true or false"},
        {PRE, "\"unk_token\":1,", "[]", "model.unk_token 1"},
        {PRE, "\"continuing_subword_prefix\":\"\u00e9\",", "[]", "continuing_subword_prefix"},
        {"{\"type\":\"Metaspace\"}", "", "[]", "pre_tokenizer {\"type\":\"Metaspace\"}"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"_\"}", "", "[]", "pre_tokenizer"},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"add_prefix_space\":false}", "", "[]",
         "pre_tokenizer"},
        {"{\"type\":\"Digits\"}", "", "[]", "individual_digits of the pre_tokenizer Digits is not true or"},
        {"{\"type\":\"UnicodeScripts\"}", "", "[]", "pre_tokenizer {\"type\":\"UnicodeScripts\"}"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x(?=\\\\Ky)\"},\"behavior\":\"Isolated\",\"invert\":"
         "false}",
         "", "[]", "the expression 'x(?=\\Ky)' of the pre_tokenizer: the escape at byte 4 is not supported"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Shuffled\",\"invert\":false}", "",
         "[]", "pre_tokenizer {\"type\":\"Split\""},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Isolated\"}", "", "[]",
         "the field invert of the pre_tokenizer Split"},
        {PRE, "", "[{\"id\":8,\"content\":\"x\",\"single_word\":1}]",
         "single_word of the row of added_tokens"},
        {PRE, "", "[{\"id\":0,\"content\":\"x\"}]", "'x' has the id 0, and `tokenizers` gives it the id 8"},
        {PRE, "", "[{\"id\":3,\"content\":\"a\"}]", "'a' has the id 3, and `tokenizers` gives it the id 0"},
        {PRE, "", "[{\"id\":-1,\"content\":\"x\"}]", "not from 0"},
        {PRE, "", "[{\"id\":9}]", "no content"},
        {PRE, "", "{}", "added_tokens is no array"},
        {PRE, "\"merges\":[],", "[]", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_null(parse(json_of(cases[i].pre, cases[i].extra, cases[i].added), &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
    }
    struct muster_error err = {0};
    static const char *const normalizers[] = {
        "{\"type\":\"Precompiled\"}",
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}", "{\"type\":\"Sequence\"}"};
    for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
        char text[400];
        (void)snprintf(text, sizeof text, "{\"normalizer\":%s,\"pre_tokenizer\":" PRE ",\"model\":{}}",
                       normalizers[i]);
        assert_null(parse(text, &err));
        assert_non_null(strstr(err.text, " is not supported"));
        assert_non_null(strstr(err.text, "ormalizer"));
    }
    assert_null(
        parse("{\"pre_tokenizer\":" PRE ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", &err));
    assert_non_null(strstr(err.text, "merge 0 joins 'a' and 'b', and the second is no token"));
    assert_null(parse("{\"pre_tokenizer\":" PRE ",\"model\":{\"type\":\"Unigram\"}}", &err));
    assert_non_null(strstr(err.text, "model.type \"Unigram\""));
    assert_null(
        parse("{\"decoder\":{\"type\":\"CTC\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", &err));
    assert_non_null(strstr(err.text, "decoder {\"type\":\"CTC\"} is not supported"));
    assert_null(parse("{\"padding\":1,\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", &err));
    assert_non_null(strstr(err.text, "padding 1 is not supported"));
    assert_null(parse("{\"version\":\"2.0\",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", &err));
    assert_non_null(strstr(err.text, "version \"2.0\" is not supported"));
    assert_null(parse("{\"tokens\":1,\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", &err));
    assert_non_null(strstr(err.text, "tokens is no part of a tokenizer.json"));
    assert_null(parse("{\"pre_tokenizer\":" PRE ",\"model\":{\"vocab\":{},\"merges\":[]}}", &err));
    assert_non_null(strstr(err.text, "the vocabulary is empty"));
}

static void the_pair_of_files(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char words[] = "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}",
               good[] = "#version: 0.2\na b\r\n\n", wrong[] = "a b\nab";
    struct bpe *bpe = bpe_parse_pair("w.json", words, strlen(words), good, strlen(good), NULL, &err);
    assert_non_null(bpe);
    ASSERT_IDS(bpe, "ab<|endoftext|>a", 2, 3, 0);
    assert_int_equal(bpe_ops.special(bpe).eos, 3);
    bpe_destroy(bpe);
    assert_null(bpe_parse_pair("w.json", words, strlen(words), wrong, strlen(wrong), NULL, &err));
    assert_non_null(strstr(err.text, "line 2 is no pair of tokens"));
    /* a byte order mark; classes with their own words; a class whose words are not known */
    const char marked[] = "\xEF\xBB\xBF#version: 0.2\na b\n", digits[] = "{\"1\":0,\"2\":1,\"12\":2}";
    bpe = bpe_parse_pair("w.json", words, strlen(words), marked, strlen(marked), "GPT2Tokenizer", &err);
    assert_non_null(bpe);
    ASSERT_IDS(bpe, "ab", 2);
    bpe_destroy(bpe);
    bpe = bpe_parse_pair("w.json", digits, strlen(digits), "1 2", 3, NULL, &err);
    ASSERT_IDS(bpe, "12", 2);
    bpe_destroy(bpe);
    bpe = bpe_parse_pair("w.json", digits, strlen(digits), "1 2", 3, "Qwen2Tokenizer", &err);
    assert_non_null(bpe);
    ASSERT_IDS(bpe, "12", 0, 1); /* a digit is a word */
    bpe_destroy(bpe);
    assert_null(bpe_parse_pair("w.json", digits, strlen(digits), "1 2", 3, "CLIPTokenizer", &err));
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tokenizer_class CLIPTokenizer"));
}

/* Each byte has a letter of its own, and back. */
static void the_alphabet_has_all_bytes(void **state)
{
    (void)state;
    bool seen[256] = {false};
    int found = 0;
    for (unsigned point = 0; point < 0x400; point++) {
        char text[4];
        scope_buffer byte = {0};
        const size_t length = point < 128 ? 1 : 2;
        text[0] = (char)(point < 128 ? point : 0xC0 | point >> 6);
        text[1] = (char)(0x80 | (point & 63));
        if (!alphabet_bytes(text, length, &byte))
            continue;
        assert_int_equal(byte.length, 1);
        assert_false(seen[(unsigned char)byte.data[0]]);
        seen[(unsigned char)byte.data[0]] = true;
        found++;
    }
    assert_int_equal(found, 256);
}

static int parse_once(void *context)
{
    (void)context;
    scope_token_list ids = {0};
    struct bpe *bpe = parse(json_of(PRE, "", ADDED), NULL);
    int result = bpe ? bpe_ops.encode(bpe, "ab abc", 6, &ids, NULL) : -1;
    bpe_destroy(bpe);
    return result;
}

static void survives_no_memory(void **state)
{
    (void)state;
    faults_sweep(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_tokens),         cmocka_unit_test(settings_count),
        cmocka_unit_test(a_cut_changes_no_id),         cmocka_unit_test(words_of_characters),
        cmocka_unit_test(added_tokens_are_normalized), cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(the_pair_of_files),           cmocka_unit_test(the_alphabet_has_all_bytes),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
