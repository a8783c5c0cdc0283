/* secret_fuzz.c - arbitrary bytes as the file of a job's secret: refused with words that show none of it, or
 * taken for the secret that is written back. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/security/secret.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SHOWN = 12 }; /* no more than chance */
    struct job_secret secret, again;
    struct muster_error err = {0};
    char line[SECRET_TEXT_SIZE];
    if (secret_parse((const char *)data, size, &secret, &err) < 0) {
        if (!err.text[0])
            abort();
        for (size_t i = 16; i + SHOWN <= size; i++) /* its text quotes the prefix */
            if (memmem(err.text, strlen(err.text), data + i, SHOWN) &&
                !memmem("it does not begin with 'muster-secret-1:'; muster secret makes one", 66, data + i,
                        SHOWN) &&
                !memmem("characters follow 'muster-secret-1:' instead of 64: the secret is truncated or has "
                        "extra characters",
                        99, data + i, SHOWN))
                abort();
        return 0;
    }
    secret_format(&secret, line);
    if (secret_parse(line, strlen(line), &again, &err) < 0 || memcmp(&secret, &again, sizeof again) != 0)
        abort();
    /* the same but for blanks around it and the case of its digits */
    const char *at = memchr(data, 'm', size);
    for (size_t i = 0; i < sizeof line - 1; i++)
        if (!at || tolower((unsigned char)at[i]) != line[i])
            abort();
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char text[] =
        "muster-secret-1:0123456789abcdef0123456789abcdef0123456789ABCDEF0123456789abcdef\n";
    static const char other[] = " \r\n\tmuster-secret-2:00";
    const struct fuzz_seed seeds[] = {{text, sizeof text - 1}, {other, sizeof other - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
