/* hash_test.c - md5 against its document; a tensor's text against what PyTorch prints, in a few cases
 * (tests/compat/pictures/model_hash_test.py has many). */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/hash/model_hash_internal.h"

/* RFC 1321, A.5, and lengths around a block's end. */
static void md5_is_the_rfcs(void **state)
{
    static const struct {
        const char *text, *digest;
    } vectors[] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
        {"1234567890123456789012345678901234567890123456789012345", "c9ccf168914a1bcfc3229f1948e67da0"},
        {"12345678901234567890123456789012345678901234567890123456", "49f193adce178490e34d1b3a4ec0064c"},
        {"1234567890123456789012345678901234567890123456789012345678901234",
         "eb6c4179c0a7c82cc2828c1e6338e165"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint8_t digest[MD5_BYTES];
        char hex[2 * MD5_BYTES + 1];
        md5(vectors[i].text, strlen(vectors[i].text), digest);
        for (int b = 0; b < MD5_BYTES; b++)
            (void)snprintf(hex + 2 * b, 3, "%02x", digest[b]);
        assert_string_equal(hex, vectors[i].digest);
    }
}

static void check(const struct file_tensor *tensor, const float *values, const char *wanted)
{
    scope_buffer text = {0};
    assert_int_equal(tensor_text(&text, tensor, values), 0);
    assert_string_equal(text.data, wanted);
}

static void tensors_are_printed_as_by_pytorch(void **state)
{
    const struct file_tensor four = {.dtype = DTYPE_F32, .ndim = 1, .dim = {4}},
                             square = {.dtype = DTYPE_F32, .ndim = 2, .dim = {2, 2}},
                             long_one = {.dtype = DTYPE_F32, .ndim = 1, .dim = {1001}},
                             count = {.dtype = DTYPE_COUNT, .integer = true},
                             half = {.dtype = DTYPE_BF16, .ndim = 1, .dim = {2}};
    float many[1001];
    (void)state;
    for (int i = 0; i < 1001; i++)
        many[i] = (float)i;
    check(&four, (const float[]){0.25f, -1.5f, 3, 0}, "tensor([ 0.2500, -1.5000,  3.0000,  0.0000])");
    check(&four, (const float[]){1, 20, -3, NAN}, "tensor([ 1., 20., -3., nan])");
    check(&square, (const float[]){1e-5f, 1, -2, 0},
          "tensor([[ 1.0000e-05,  1.0000e+00],\n        [-2.0000e+00,  0.0000e+00]])");
    check(&four, (const float[]){0, 0, 0, 0}, "tensor([0., 0., 0., 0.])");
    check(&long_one, many, "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])");
    check(&half, (const float[]){0.5f, 2}, "tensor([0.5000, 2.0000], dtype=torch.bfloat16)");
    check(&count, (const float[]){390625}, "tensor(390625)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(md5_is_the_rfcs),
        cmocka_unit_test(tensors_are_printed_as_by_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
