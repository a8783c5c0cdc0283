/* fake_library.c - libcudnn.so.9 as far as the module itself asks it (runtime/cuda/cudnn/attention.c). */
#include <stddef.h>

__attribute__((visibility("default"))) size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void)
{
    return 91900;
}
