/* shared.h - inside of the emulator: the shared memory of the block that runs. There is one: kernels of two
 * streams take turns. */
#ifndef MUSTER_TESTS_GPU_SHARED_H
#define MUSTER_TESTS_GPU_SHARED_H

#include <cstddef>

enum {
    EMU_SHARED_LARGEST = 48 << 10, /* bytes that a launch may ask for without more ado */
    EMU_SHARED_ALLOWED =
        99 << 10 /* and where its kernel is allowed more: all devices from sm_80 on have them */
};

/* All shared memory is new and has all its bits set; of the dynamic part, `bytes` of it. */
void emu_shared_fresh(size_t bytes);

#endif
