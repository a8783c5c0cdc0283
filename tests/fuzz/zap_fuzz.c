/* zap_fuzz.c - arbitrary frames as a request for admission: nobody comes in but with the key or, where there
 * is none, with a well-formed request. Input: a byte of rules, then frames, each a byte of length before it.
 */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/security/zap.h"
#include "tests/fuzz/random_main.h"

static const unsigned char key[SECRET_KEY_SIZE] = "0123456789abcdef0123456789abcdeF";

static size_t cut(const uint8_t *data, size_t size, struct zap_frame frames[ZAP_FRAMES_LIMIT])
{
    size_t count = 0;
    while (size && count < ZAP_FRAMES_LIMIT) {
        size_t length = *data++;
        size--;
        length = length < size ? length : size;
        frames[count++] = (struct zap_frame){data, length};
        data += length;
        size -= length;
    }
    return count;
}

static bool is(const struct zap_frame *frame, const void *bytes, size_t size)
{
    return frame->size == size && !memcmp(frame->data, bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zap_frame frames[ZAP_FRAMES_LIMIT] = {0};
    struct zap_answer answer;
    struct zap_rules rules = {size && *data & 1 ? key : NULL, size && *data & 2};
    size_t count = size ? cut(data + 1, size - 1, frames) : 0;
    zap_decide(&rules, frames, count, &answer);
    if (answer.id_size > ZAP_ID_LIMIT || strlen(answer.address) >= sizeof answer.address ||
        answer.refused == !strcmp(answer.code, "200"))
        abort();
    if (!answer.refused && (count < 6 || !is(&frames[2], ZAP_DOMAIN, strlen(ZAP_DOMAIN)) || !answer.id_size))
        abort();
    if (!answer.refused && rules.client_public && (count != 7 || !is(&frames[6], key, sizeof key)))
        abort();
    if (!answer.refused && !rules.client_public && (rules.crowded || count != 6))
        abort();
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char with_key[] = "\001\0031.0\0017\006muster\01010.1.2.3\000\005CURVE"
                                   "\0400123456789abcdef0123456789abcdeF";
    static const char without[] = "\000\0031.0\0017\006muster\01010.1.2.3\000\004NULL";
    const struct fuzz_seed seeds[] = {{with_key, sizeof with_key - 1}, {without, sizeof without - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
