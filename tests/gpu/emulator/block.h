/* block.h - inside of the emulator: one block after the other of a launch, on the calling thread. */
#ifndef MUSTER_TESTS_GPU_BLOCK_H
#define MUSTER_TESTS_GPU_BLOCK_H

#include <memory>

#include "tests/gpu/emulator/cuda_emulated.h"

/* In which order the threads of a block, and the blocks of a grid, get their turns. Results must not depend
 * on it. */
enum emu_order { EMU_UP, EMU_DOWN, EMU_SHUFFLED };

struct emu_launch_call {
    const char *operation, *kernel;
    dim3 grid, block;
    size_t shared; /* bytes */
    enum emu_order order;
    uint64_t seed; /* for EMU_SHUFFLED */
    std::unique_ptr<struct emu_body> body;
};

/* A broken rule ends the program with a line on stderr that names kernel, places and threads. */
void emu_run(struct emu_launch_call *call);

#endif
