/* no_thread.c - preloaded by tests/e2e/train/no_thread_test.py: with NO_THREAD=PROGRAM:N the N-th thread that
 * this program itself starts is refused, as where the cgroup's pids.max is reached, and so are all later
 * threads. Threads of the libraries that it links are theirs. NO_THREAD_MARK is a file that is made then. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

/* The first object of all is the program. */
static int look(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    uintptr_t *address = context;
    bool inside = false;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        inside |= part->p_type == PT_LOAD && *address - object->dlpi_addr - part->p_vaddr < part->p_memsz;
    }
    *address = inside;
    return 1;
}

static bool is_of_program(const void *caller)
{
    uintptr_t address = (uintptr_t)caller;
    (void)dl_iterate_phdr(look, &address);
    return address;
}

static bool is_refused(void)
{
    static _Atomic(int) started;
    const char *setting = getenv("NO_THREAD"), *name = program_invocation_short_name, *mark;
    const size_t length = strlen(name);
    if (!setting || strncmp(setting, name, length) != 0 || setting[length] != ':' ||
        atomic_fetch_add(&started, 1) + 1 < atoi(setting + length + 1))
        return false;
    mark = getenv("NO_THREAD_MARK");
    const int fd = mark ? open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        (void)close(fd);
    return true;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *argument)
{
    if (is_of_program(__builtin_return_address(0)) && is_refused())
        return EAGAIN;
    create *real = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, argument);
}
