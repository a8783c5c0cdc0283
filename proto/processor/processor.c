/* processor.c - see processor.h. Compiled for the oldest processor, without vector registers, and it calls
 * nothing of ours that is not: texts are put together by hand. */
#include "proto/processor/processor.h"

#include <stddef.h>
#include <stdint.h>

#include "proto/processor/features.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* What reaches the registers' upper parts counts where the operating system saves them, too. */
enum processor_where {
    LEAF1_ECX,
    LEAF7_EBX,
    EXTENDED_ECX,
    AVX_LEAF1_ECX,
    AVX_LEAF7_EBX,
    AVX_EXTENDED_ECX,
    AVX512_LEAF7_EBX,
    AVX512_LEAF7_ECX,
    AVX512_LEAF7_EDX,
    WHERE_COUNT
};

static uint32_t processor_saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void processor_read(uint32_t words[WHERE_COUNT])
{
    enum { OSXSAVE = 1 << 27, SAVES_AVX = 0x06, SAVES_AVX512 = 0xe6 };
    const unsigned extended_leaf = 0x80000001;
    uint32_t eax, ebx, ecx, edx, leaf1 = 0, extended = 0;
    uint32_t ebx7 = 0, ecx7 = 0, edx7 = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        leaf1 = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        ebx7 = ebx, ecx7 = ecx, edx7 = edx;
    if (__get_cpuid(extended_leaf, &eax, &ebx, &ecx, &edx))
        extended = ecx;
    uint32_t saved = leaf1 & OSXSAVE ? processor_saved_registers() : 0;
    uint32_t avx = (saved & SAVES_AVX) == SAVES_AVX ? ~0U : 0;
    uint32_t avx512 = (saved & SAVES_AVX512) == SAVES_AVX512 ? ~0U : 0;
    words[LEAF1_ECX] = leaf1;
    words[LEAF7_EBX] = ebx7;
    words[EXTENDED_ECX] = extended;
    words[AVX_LEAF1_ECX] = leaf1 & avx;
    words[AVX_LEAF7_EBX] = ebx7 & avx;
    words[AVX_EXTENDED_ECX] = extended & avx;
    words[AVX512_LEAF7_EBX] = ebx7 & avx512;
    words[AVX512_LEAF7_ECX] = ecx7 & avx512;
    words[AVX512_LEAF7_EDX] = edx7 & avx512;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

enum processor_where { HWCAP1, HWCAP2, WHERE_COUNT };

static void processor_read(uint32_t words[WHERE_COUNT])
{
    words[HWCAP1] = (uint32_t)getauxval(AT_HWCAP);
    words[HWCAP2] = (uint32_t)getauxval(AT_HWCAP2);
}

#else

enum processor_where { WHERE_COUNT = 1 };

static void processor_read(uint32_t words[WHERE_COUNT])
{
    words[0] = 0;
}

#endif

struct processor_feature {
    const char *name;
    unsigned where, bit;
};

#define FEATURE_ROW(name, macro, where, bit) {name, where, bit},
static const struct processor_feature features[] = {PROCESSOR_FEATURES(FEATURE_ROW){NULL, 0, 0}};

/* A virtual machine traps each cpuid, for some 10 us: a build for every processor asks for none. */
const char *processor_lacks(void)
{
    uint32_t words[WHERE_COUNT];
    int looked = 0;
    for (size_t i = 0; features[i].name; i++) {
        if (!processor_needed[i])
            continue;
        if (!looked++)
            processor_read(words);
        if (!(words[features[i].where] >> features[i].bit & 1))
            return features[i].name;
    }
    return NULL;
}

static unsigned processor_append(char *text, unsigned size, unsigned at, const char *more)
{
    while (*more && at + 1 < size)
        text[at++] = *more++;
    text[at] = 0;
    return at;
}

void processor_sentence(const char *missing, char *text, unsigned size)
{
    if (!size)
        return;
    unsigned at = processor_append(text, size, 0, "this build was compiled for processors with ");
    at = processor_append(text, size, at, missing);
    (void)processor_append(text, size, at,
                           ", which this one lacks: build it without -march and -mcpu in CFLAGS, or on the "
                           "oldest machine of the job");
}

int processor_check(struct muster_error *err)
{
    const char *missing = processor_lacks();
    if (!missing)
        return 0;
    if (err) {
        err->code = MUSTER_E_UNSUPPORTED;
        processor_sentence(missing, err->text, sizeof err->text);
    }
    return -1;
}
