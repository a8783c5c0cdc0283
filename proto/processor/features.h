/* features.h - one header, included several times: what compilers use of a processor on their own where flags
 * like -march allow it.
 *
 * What users know comes first, since one is named. X(name, macro that the compiler then defines as 1, where
 * the processor reports it, bit) */
#if defined(__x86_64__)
#define PROCESSOR_FEATURES(X)                                                                                \
    X("SSE3", __SSE3__, LEAF1_ECX, 0)                                                                        \
    X("SSSE3", __SSSE3__, LEAF1_ECX, 9)                                                                      \
    X("SSE4.1", __SSE4_1__, LEAF1_ECX, 19)                                                                   \
    X("SSE4.2", __SSE4_2__, LEAF1_ECX, 20)                                                                   \
    X("AVX", __AVX__, AVX_LEAF1_ECX, 28)                                                                     \
    X("AVX2", __AVX2__, AVX_LEAF7_EBX, 5)                                                                    \
    X("AVX512F", __AVX512F__, AVX512_LEAF7_EBX, 16)                                                          \
    X("CMPXCHG16B", __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16, LEAF1_ECX, 13)                                      \
    X("MOVBE", __MOVBE__, LEAF1_ECX, 22)                                                                     \
    X("POPCNT", __POPCNT__, LEAF1_ECX, 23)                                                                   \
    X("F16C", __F16C__, AVX_LEAF1_ECX, 29)                                                                   \
    X("FMA", __FMA__, AVX_LEAF1_ECX, 12)                                                                     \
    X("BMI1", __BMI__, LEAF7_EBX, 3)                                                                         \
    X("BMI2", __BMI2__, LEAF7_EBX, 8)                                                                        \
    X("LZCNT", __LZCNT__, EXTENDED_ECX, 5)                                                                   \
    X("SSE4a", __SSE4A__, EXTENDED_ECX, 6)                                                                   \
    X("XOP", __XOP__, AVX_EXTENDED_ECX, 11)                                                                  \
    X("FMA4", __FMA4__, AVX_EXTENDED_ECX, 16)                                                                \
    X("TBM", __TBM__, EXTENDED_ECX, 21)                                                                      \
    X("AVX512DQ", __AVX512DQ__, AVX512_LEAF7_EBX, 17)                                                        \
    X("AVX512IFMA", __AVX512IFMA__, AVX512_LEAF7_EBX, 21)                                                    \
    X("AVX512CD", __AVX512CD__, AVX512_LEAF7_EBX, 28)                                                        \
    X("AVX512BW", __AVX512BW__, AVX512_LEAF7_EBX, 30)                                                        \
    X("AVX512VL", __AVX512VL__, AVX512_LEAF7_EBX, 31)                                                        \
    X("AVX512VBMI", __AVX512VBMI__, AVX512_LEAF7_ECX, 1)                                                     \
    X("AVX512VBMI2", __AVX512VBMI2__, AVX512_LEAF7_ECX, 6)                                                   \
    X("AVX512VNNI", __AVX512VNNI__, AVX512_LEAF7_ECX, 11)                                                    \
    X("AVX512BITALG", __AVX512BITALG__, AVX512_LEAF7_ECX, 12)                                                \
    X("AVX512VPOPCNTDQ", __AVX512VPOPCNTDQ__, AVX512_LEAF7_ECX, 14)                                          \
    X("AVX512FP16", __AVX512FP16__, AVX512_LEAF7_EDX, 23)
#elif defined(__aarch64__)
#define PROCESSOR_FEATURES(X)                                                                                \
    X("CRC32", __ARM_FEATURE_CRC32, HWCAP1, 7)                                                               \
    X("LSE atomics", __ARM_FEATURE_ATOMICS, HWCAP1, 8)                                                       \
    X("FP16 arithmetic", __ARM_FEATURE_FP16_VECTOR_ARITHMETIC, HWCAP1, 10)                                   \
    X("RDM", __ARM_FEATURE_QRDMX, HWCAP1, 12)                                                                \
    X("JSCVT", __ARM_FEATURE_JCVT, HWCAP1, 13)                                                               \
    X("complex arithmetic", __ARM_FEATURE_COMPLEX, HWCAP1, 14)                                               \
    X("LRCPC", __ARM_FEATURE_RCPC, HWCAP1, 15)                                                               \
    X("dot products", __ARM_FEATURE_DOTPROD, HWCAP1, 20)                                                     \
    X("SVE", __ARM_FEATURE_SVE, HWCAP1, 22)                                                                  \
    X("SVE2", __ARM_FEATURE_SVE2, HWCAP2, 1)                                                                 \
    X("I8MM", __ARM_FEATURE_MATMUL_INT8, HWCAP2, 13)                                                         \
    X("BF16", __ARM_FEATURE_BF16, HWCAP2, 14)
#else
#define PROCESSOR_FEATURES(X) /* no other processor was tried */
#endif
