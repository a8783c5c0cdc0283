/* secret.h: texts that are secrets, and texts that are not; keys against values that hashlib.blake2b and an
 * X25519 ladder in Python gave. */
#include "rendezvous/security/secret.h"

#include <stdio.h>

#include "tests/support/cmocka_all.h"

static const char good[] = "muster-secret-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

static void counting(struct job_secret *secret)
{
    for (int i = 0; i < SECRET_SIZE; i++)
        secret->bytes[i] = (unsigned char)i;
}

static void assert_hex(const unsigned char *bytes, const char *expected)
{
    char text[2 * SECRET_KEY_SIZE + 1];
    for (int i = 0; i < SECRET_KEY_SIZE; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, expected);
}

static void keys_are_those_of_the_documented_derivation(void **state)
{
    (void)state;
    struct job_secret secret;
    struct job_keys keys, others;
    counting(&secret);
    assert_int_equal(secret_derive(&secret, "job-7", &keys, NULL), 0);
    assert_hex(keys.server_secret, "45fbb51c1be44071aabd8f29da91f1ecb65806e3dabe6829d9ff0ddb4762d00d");
    assert_hex(keys.server_public, "c7ac7da6d4106d1acc5860caa1e13c8edbc8f0a754a4c44a353ec8b6a5147343");
    assert_hex(keys.client_secret, "487b205f5d6e3b1059b9db913b547b705c42b68a7452a307e56681ee4eeb2ff3");
    assert_hex(keys.client_public, "e881fbe50a2ab7388c744568141752317c1034e9377daee14a36ec0d3815d35e");
    assert_int_equal(secret_derive(&secret, "none", &others, NULL), 0);
    assert_hex(others.client_secret, "3a99246acd279ae923553307e0fc9bda7bea9b89566cdf52ac79e3b46dd08bac");
    assert_hex(others.client_public, "3b5d0cd2363ce0d692ef8dda46a2e74fba9f849a033d9c626f0b6e88bcb8bc37");
    assert_memory_equal(keys.server_public, others.server_public, SECRET_KEY_SIZE);
}

static void text_and_bytes_are_one_secret(void **state)
{
    (void)state;
    struct job_secret secret, read;
    char text[SECRET_TEXT_SIZE];
    counting(&secret);
    secret_format(&secret, text);
    assert_string_equal(text, good);
    assert_int_equal(secret_parse(text, strlen(text), &read, NULL), 0);
    assert_memory_equal(&read, &secret, sizeof secret);
}

static void blanks_around_and_capitals_do_not_count(void **state)
{
    (void)state;
    static const char text[] =
        " \r\n\tmuster-secret-1:000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\r\n\n";
    struct job_secret secret, read;
    counting(&secret);
    assert_int_equal(secret_parse(text, sizeof text - 1, &read, NULL), 0);
    assert_memory_equal(&read, &secret, sizeof secret);
}

static void what_is_no_secret_is_told_without_showing_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", "it is empty; muster secret makes one"},
        {"  \n", "it is empty; muster secret makes one"},
        {"replace-me", "muster secret makes one"},
        {"muster-secret-1", "another version"},
        {"muster-secret-2:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
         "another version"},
        {"muster-secret-1:", "0 characters follow"},
        {"muster-secret-1:0001020304050607", "16 characters follow"},
        {"muster-secret-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f00",
         "66 characters"},
        {"muster-secret-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1g", "character 80"},
        {"muster-secret-1:0001020304050607 8090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "character 33"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "does not begin"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job_secret secret;
        struct muster_error err = {0};
        assert_int_equal(secret_parse(rows[i].text, strlen(rows[i].text), &secret, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        assert_non_null(strstr(err.text, rows[i].expected));
        assert_null(strstr(err.text, "0001020304"));
    }
}

static void a_zero_byte_inside_is_no_digit(void **state)
{
    (void)state;
    char text[sizeof good];
    struct job_secret secret;
    memcpy(text, good, sizeof good);
    text[40] = '\0';
    assert_int_equal(secret_parse(text, sizeof good - 1, &secret, NULL), -1);
}

static void a_wiped_secret_is_zero(void **state)
{
    (void)state;
    struct job_secret secret;
    static const struct job_secret zero;
    counting(&secret);
    secret_wipe(&secret, sizeof secret);
    assert_memory_equal(&secret, &zero, sizeof zero);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_the_documented_derivation),
        cmocka_unit_test(text_and_bytes_are_one_secret),
        cmocka_unit_test(blanks_around_and_capitals_do_not_count),
        cmocka_unit_test(what_is_no_secret_is_told_without_showing_it),
        cmocka_unit_test(a_zero_byte_inside_is_no_digit),
        cmocka_unit_test(a_wiped_secret_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
