/* start.c - linked into every program of ours: one clear line where the processor lacks an instruction set of
 * the build, in place of a SIGILL somewhere.
 *
 * It runs before any constructor, of ours or of a library's, and before main, which may be compiled with
 * missing instructions. */
#include <string.h>
#include <unistd.h>

#include "proto/exit_code.h"
#include "proto/processor/processor.h"

static void start_write(const char *text)
{
    ssize_t done = write(STDERR_FILENO, text, strlen(text));
    (void)done; /* there is no other place to say it */
}

static void start_check(int argc, char **argv, char **envp)
{
    char sentence[256];
    const char *missing = processor_lacks();
    (void)envp;
    if (!missing)
        return;
    const char *name = argc > 0 ? argv[0] : "muster", *slash = strrchr(name, '/');
    processor_sentence(missing, sentence, sizeof sentence);
    start_write(slash ? slash + 1 : name);
    start_write(": error: ");
    start_write(sentence);
    start_write("\n");
    _exit(EXIT_CODE_CANNOT_EXECUTE);
}

typedef void start_function(int argc, char **argv, char **envp);
static start_function *const start_entry __attribute__((used, section(".preinit_array"))) = start_check;
