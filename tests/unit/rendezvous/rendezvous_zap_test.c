/* zap.h: who comes in, on hostile frames too; rejection_log.h: how often the log is told. */
#include "rendezvous/security/zap.h"

#include <stdio.h>

#include "tests/support/cmocka_all.h"

static const unsigned char key[SECRET_KEY_SIZE] = "0123456789abcdef0123456789abcdeF";
static const unsigned char other[SECRET_KEY_SIZE] = "0123456789abcdef0123456789abcdef";

#define TEXT(text)                                                                                           \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }
#define KEY(bytes)                                                                                           \
    {                                                                                                        \
        bytes, SECRET_KEY_SIZE                                                                               \
    }
#define HEAD TEXT("1.0"), TEXT("7"), TEXT(ZAP_DOMAIN), TEXT("10.1.2.3"), TEXT("")

static const char long_id[ZAP_ID_LIMIT + 1];

static const struct {
    bool keys, crowded;
    struct zap_frame frames[ZAP_FRAMES_LIMIT];
    size_t count;
    const char *code;
    enum rejection rejection;
} table[] = {
    {true, false, {HEAD, TEXT("CURVE"), KEY(key)}, 7, "200", 0},
    {false, false, {HEAD, TEXT("NULL")}, 6, "200", 0},
    {true, true, {HEAD, TEXT("CURVE"), KEY(key)}, 7, "200", 0},
    {false, true, {HEAD, TEXT("NULL")}, 6, "300", REJECTION_CROWD},
    /* the wrong key, mechanism, or none */
    {true, false, {HEAD, TEXT("CURVE"), KEY(other)}, 7, "400", REJECTION_OTHER_JOB},
    {true, false, {HEAD, TEXT("NULL")}, 6, "400", REJECTION_NO_SECRET},
    {true, false, {HEAD, TEXT("NULL"), KEY(key)}, 7, "400", REJECTION_NO_SECRET},
    {true, false, {HEAD, TEXT("PLAIN"), TEXT("user"), TEXT("password")}, 8, "400", REJECTION_NO_SECRET},
    {true, false, {HEAD, TEXT("curve"), KEY(key)}, 7, "400", REJECTION_NO_SECRET},
    {true, false, {HEAD, TEXT("CURVE\0"), KEY(key)}, 7, "400", REJECTION_NO_SECRET},
    {true, false, {HEAD, TEXT("")}, 6, "400", REJECTION_NO_SECRET},
    {false, false, {HEAD, TEXT("CURVE"), KEY(key)}, 7, "400", REJECTION_SECRET_UNWANTED},
    /* the key in pieces, too long, twice, not at all */
    {true, false, {HEAD, TEXT("CURVE"), {key, SECRET_KEY_SIZE - 1}}, 7, "500", REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE"), {key, 0}}, 7, "500", REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE"), {NULL, 0}}, 7, "500", REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE"), {long_id, SECRET_KEY_SIZE + 1}}, 7, "500", REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE")}, 6, "500", REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE"), KEY(key), KEY(key)}, 8, "500", REJECTION_MALFORMED},
    {false, false, {HEAD, TEXT("NULL"), TEXT("")}, 7, "500", REJECTION_MALFORMED},
    /* another protocol, another domain, an id that cannot be sent back, too few frames */
    {true,
     false,
     {TEXT("2.0"), TEXT("7"), TEXT(ZAP_DOMAIN), TEXT(""), TEXT(""), TEXT("CURVE"), KEY(key)},
     7,
     "500",
     REJECTION_MALFORMED},
    {true,
     false,
     {TEXT("1.0"), TEXT("7"), TEXT(""), TEXT(""), TEXT(""), TEXT("CURVE"), KEY(key)},
     7,
     "500",
     REJECTION_MALFORMED},
    {false,
     false,
     {TEXT("1.0"), TEXT("7"), TEXT("global"), TEXT(""), TEXT(""), TEXT("NULL")},
     6,
     "500",
     REJECTION_MALFORMED},
    {true,
     false,
     {TEXT("1.0"), TEXT(""), TEXT(ZAP_DOMAIN), TEXT(""), TEXT(""), TEXT("CURVE"), KEY(key)},
     7,
     "500",
     REJECTION_MALFORMED},
    {true,
     false,
     {TEXT("1.0"), {long_id, sizeof long_id}, TEXT(ZAP_DOMAIN), TEXT(""), TEXT(""), TEXT("CURVE"), KEY(key)},
     7,
     "500",
     REJECTION_MALFORMED},
    {true, false, {HEAD, TEXT("CURVE"), KEY(key)}, 5, "500", REJECTION_MALFORMED},
    {true, false, {HEAD}, 1, "500", REJECTION_MALFORMED},
    {true, false, {HEAD}, 0, "500", REJECTION_MALFORMED},
};

static void only_the_key_comes_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct zap_rules rules = {table[i].keys ? key : NULL, table[i].crowded};
        struct zap_answer answer;
        zap_decide(&rules, table[i].frames, table[i].count, &answer);
        if (strcmp(answer.code, table[i].code) != 0)
            fail_msg("row %zu: %s instead of %s", i, answer.code, table[i].code);
        assert_int_equal(answer.refused, strcmp(table[i].code, "200") != 0);
        if (answer.refused)
            assert_int_equal(answer.rejection, table[i].rejection);
        assert_true(answer.id_size <= ZAP_ID_LIMIT);
    }
}

/* Memory after the received frames belongs to another request. */
static void frames_that_did_not_come_are_not_looked_at(void **state)
{
    (void)state;
    static const struct zap_frame foreign[ZAP_FRAMES_LIMIT] = {HEAD, TEXT("PLAIN"), KEY(other), KEY(other)};
    for (size_t row = 0; row < 2; row++)
        for (size_t count = 0; count < table[row].count; count++) {
            struct zap_rules rules = {table[row].keys ? key : NULL, false};
            struct zap_frame frames[ZAP_FRAMES_LIMIT];
            struct zap_answer answer;
            memcpy(frames, foreign, sizeof frames);
            memcpy(frames, table[row].frames, count * sizeof *frames);
            zap_decide(&rules, frames, count, &answer);
            assert_true(answer.refused);
            assert_string_equal(answer.code, "500");
            assert_int_equal(answer.rejection, REJECTION_MALFORMED);
            assert_int_equal(answer.id_size, count > 1);
            assert_string_equal(answer.address, count > 3 ? "10.1.2.3" : "");
        }
}

static void an_address_fits_or_is_left_out(void **state)
{
    (void)state;
    struct zap_answer answer;
    char text[sizeof answer.address + 1];
    memset(text, 'a', sizeof text);
    for (size_t length = sizeof answer.address - 1; length <= sizeof answer.address; length++) {
        const struct zap_frame frames[] = {TEXT("1.0"),    TEXT("7"), TEXT(ZAP_DOMAIN),
                                           {text, length}, TEXT(""),  TEXT("NULL")};
        zap_decide(&(struct zap_rules){NULL, false}, frames, 6, &answer);
        assert_string_equal(answer.code, "200");
        assert_int_equal(strnlen(answer.address, sizeof answer.address),
                         length < sizeof answer.address ? length : 0);
    }
}

static void the_answer_names_request_and_peer(void **state)
{
    (void)state;
    struct zap_rules rules = {key, false};
    struct zap_answer answer;
    zap_decide(&rules, table[0].frames, table[0].count, &answer);
    assert_int_equal(answer.id_size, 1);
    assert_int_equal(answer.id[0], '7');
    assert_string_equal(answer.address, "10.1.2.3");
}

static void an_address_that_would_spoil_the_log_is_left_out(void **state)
{
    (void)state;
    static const char *const bad[] = {"10.1.2.3\nmuster: ok", "a b", "\x1b[31m", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct zap_frame frames[] = {
            TEXT("1.0"), TEXT("7"), TEXT(ZAP_DOMAIN), {bad[i], strlen(bad[i])}, TEXT(""), TEXT("NULL")};
        struct zap_rules rules = {NULL, false};
        struct zap_answer answer;
        zap_decide(&rules, frames, 6, &answer);
        assert_string_equal(answer.address, "");
        assert_string_equal(answer.code, "200");
    }
}

/* --- the log --- */

static struct instant at(int64_t seconds)
{
    return (struct instant){seconds * NS_PER_S};
}

static void a_reason_is_told_once_and_then_counted(void **state)
{
    (void)state;
    struct rejection_log rejections = {0};
    char line[REJECTION_LINE_SIZE];
    assert_int_equal(rejection_log_deadline(&rejections).ns, INT64_MAX);
    assert_true(rejection_log_note(&rejections, REJECTION_NO_SECRET, "10.1.2.3", at(100), line));
    assert_non_null(strstr(line, "refused 10.1.2.3: it has no secret"));
    assert_int_equal(rejection_log_deadline(&rejections).ns, INT64_MAX);
    for (int i = 0; i < 41; i++)
        assert_false(
            rejection_log_note(&rejections, REJECTION_NO_SECRET, i < 40 ? "10.1.2.4" : "", at(101), line));
    assert_true(rejection_log_note(&rejections, REJECTION_PROTOCOL, "", at(101), line)); /* another reason */
    assert_non_null(strstr(line, "refused a peer: it does not speak"));
    assert_int_equal(rejection_log_deadline(&rejections).ns, at(160).ns);
    assert_false(rejection_log_next(&rejections, at(159), line));
    assert_true(rejection_log_next(&rejections, at(160), line));
    assert_non_null(strstr(line, "refused 41 more (42 in all), the last a peer: it has no secret"));
    assert_false(rejection_log_next(&rejections, at(160), line));
    assert_true(rejection_log_total(&rejections, line));
    assert_string_equal(line, "connections that were refused: 42 (no secret), 1 (not muster's protocol)");
}

static void an_address_is_told_when_it_is_first_known(void **state)
{
    (void)state;
    struct rejection_log rejections = {0};
    char line[REJECTION_LINE_SIZE];
    assert_true(rejection_log_note(&rejections, REJECTION_SILENT, "", at(1), line));
    assert_non_null(strstr(line, "refused a peer: "));
    assert_false(rejection_log_note(&rejections, REJECTION_SILENT, "", at(2), line));
    assert_true(rejection_log_note(&rejections, REJECTION_SILENT, "10.1.2.3", at(3), line));
    assert_non_null(strstr(line, "refused 10.1.2.3: "));
    assert_false(rejection_log_note(&rejections, REJECTION_SILENT, "10.1.2.4", at(4), line));
    assert_true(rejection_log_next(&rejections, at(61), line));
    assert_non_null(strstr(line, "refused 2 more (4 in all), the last 10.1.2.4: "));
}

static void a_flood_is_a_few_lines_a_day(void **state)
{
    (void)state;
    struct rejection_log rejections = {0};
    char line[REJECTION_LINE_SIZE];
    int lines = 0;
    for (int64_t second = 0; second < 24 * 3600; second++) {
        for (int reason = 0; reason < REJECTION_COUNT; reason++)
            lines += rejection_log_note(&rejections, (enum rejection)reason, "::1", at(second), line);
        while (rejection_log_next(&rejections, at(second), line))
            lines++;
    }
    assert_in_range(lines, REJECTION_COUNT * 24, REJECTION_COUNT * 32);
}

static void the_longest_lines_fit(void **state)
{
    (void)state;
    struct rejection_log rejections = {0};
    char line[REJECTION_LINE_SIZE], address[REJECTION_ADDRESS_SIZE];
    memset(address, 'x', sizeof address);
    address[sizeof address - 1] = '\0';
    assert_false(rejection_log_total(&rejections, line));
    for (int reason = 0; reason < REJECTION_COUNT; reason++) {
        assert_true(rejection_log_note(&rejections, (enum rejection)reason, address, at(0), line));
        assert_true(strlen(line) < sizeof line - 1);
        rejections.reasons[reason].unlogged = rejections.reasons[reason].total = UINT64_MAX;
    }
    while (rejection_log_next(&rejections, at(100), line))
        assert_true(strlen(line) < sizeof line - 1);
    assert_true(rejection_log_total(&rejections, line));
    assert_true(strlen(line) < sizeof line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_key_comes_in),
        cmocka_unit_test(frames_that_did_not_come_are_not_looked_at),
        cmocka_unit_test(an_address_fits_or_is_left_out),
        cmocka_unit_test(the_answer_names_request_and_peer),
        cmocka_unit_test(an_address_that_would_spoil_the_log_is_left_out),
        cmocka_unit_test(a_reason_is_told_once_and_then_counted),
        cmocka_unit_test(an_address_is_told_when_it_is_first_known),
        cmocka_unit_test(a_flood_is_a_few_lines_a_day),
        cmocka_unit_test(the_longest_lines_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
