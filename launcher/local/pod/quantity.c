/* quantity.c - see quantity.h. */
#include "launcher/local/pod/quantity.h"

#include <string.h>

#include "proto/base/text.h"

enum { DIGITS_LIMIT = 24 }; /* 10^24 x 10^3 x 2^60 would not fit: the product is checked */

static const struct {
    const char *suffix;
    int64_t numerator, denominator;
} suffixes[] = {
    {"", 1, 1},
    {"n", 1, 1000000000},
    {"u", 1, 1000000},
    {"m", 1, 1000},
    {"k", 1000, 1},
    {"M", 1000000, 1},
    {"G", 1000000000, 1},
    {"T", 1000000000000, 1},
    {"P", 1000000000000000, 1},
    {"E", 1000000000000000000, 1},
    {"Ki", INT64_C(1) << 10, 1},
    {"Mi", INT64_C(1) << 20, 1},
    {"Gi", INT64_C(1) << 30, 1},
    {"Ti", INT64_C(1) << 40, 1},
    {"Pi", INT64_C(1) << 50, 1},
    {"Ei", INT64_C(1) << 60, 1},
};

static bool power_of_ten(int64_t exponent, int64_t *out)
{
    *out = 1;
    if (exponent > 18)
        return false;
    while (exponent-- > 0)
        *out *= 10;
    return true;
}

/* The unit after the number, as a fraction. */
static bool parse_suffix(const char *text, int64_t *numerator, int64_t *denominator)
{
    int64_t exponent;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (!strcmp(text, suffixes[i].suffix)) {
            *numerator = suffixes[i].numerator;
            *denominator = suffixes[i].denominator;
            return true;
        }
    }
    if ((*text != 'e' && *text != 'E') || !text_int64(text + 1, &exponent) || exponent < -18)
        return false;
    *numerator = *denominator = 1;
    return exponent < 0 ? power_of_ten(-exponent, denominator) : power_of_ten(exponent, numerator);
}

bool quantity_parse(const char *text, quantity_thousandths *out)
{
    bool negative = *text == '-', point = false;
    quantity_thousandths digits = 0, scale = 1;
    int count = 0;
    int64_t numerator, denominator;
    text += *text == '-' || *text == '+';
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        if (++count > DIGITS_LIMIT)
            return false;
        digits = digits * 10 + (*text - '0');
        scale *= point ? 10 : 1;
    }
    if (!count || !parse_suffix(text, &numerator, &denominator))
        return false;
    if (__builtin_mul_overflow(digits, (quantity_thousandths)numerator, &digits) ||
        __builtin_mul_overflow(digits, (quantity_thousandths)1000, &digits) ||
        __builtin_mul_overflow(scale, (quantity_thousandths)denominator, &scale))
        return false;
    digits = digits / scale + (digits % scale != 0);
    *out = negative ? -digits : digits;
    return true;
}

int64_t quantity_in(quantity_thousandths value, quantity_thousandths divisor)
{
    quantity_thousandths whole = value / divisor + (value > 0 && value % divisor != 0);
    return whole > INT64_MAX ? INT64_MAX : whole < INT64_MIN ? INT64_MIN : (int64_t)whole;
}
