/* device_support.c - see device_support.h. */
#include "tests/gpu/device/device_support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"

bool device_on_fakes(void)
{
    return getenv("MUSTER_OVER_FAKES") != NULL;
}

const struct muster_cuda_module *device_module(void)
{
    struct muster_error err = {0};
    const struct muster_cuda_module *module = device_module_load(&err);
    if (!module || module->probe(&err)) {
        printf("skipped: %s\n", err.text);
        exit(77);
    }
    return module;
}

int device_begin(void **state)
{
    static struct fixture f;
    struct muster_error err = {0};
    f = (struct fixture){.ops = device_module()->device};
    f.device = f.ops->open(0, 1, &err);
    if (f.device && !f.ops->arena_create(f.device, MEMORY_DEVICE, BYTES, &f.memory, &err) &&
        !f.ops->arena_create(f.device, MEMORY_PINNED, BYTES, &f.pinned, &err) &&
        (f.a = f.ops->stream_create(f.device, "a", false, &err)) &&
        (f.b = f.ops->stream_create(f.device, "b", false, &err))) {
        *state = &f;
        return 0;
    }
    printf("%s\n", err.text);
    return -1;
}

int device_end(void **state)
{
    struct fixture *f = *state;
    f->ops->stream_destroy(f->a);
    f->ops->stream_destroy(f->b);
    f->ops->arena_destroy(f->device, &f->memory);
    f->ops->arena_destroy(f->device, &f->pinned);
    f->ops->close(f->device);
    return 0;
}

void device_finish(const struct fixture *f, struct device_stream *stream)
{
    struct muster_error err = {0};
    if (f->ops->sync(stream, instant_add(clock_now(NULL), 20 * NS_PER_S), &err))
        fail_msg("%s", err.text);
}

void *device_function(const char *name)
{
    void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    if (library)
        (void)dlclose(library); /* the module keeps it */
    return function;
}

uint64_t device_calls(const char *function)
{
    uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))(uintptr_t)device_function("fake_calls");
    return calls ? calls(function) : 0;
}

void device_add_numbers(void *argument)
{
    const struct device_add *add = argument;
    add->kernels->add(add->numbers, add->numbers, add->numbers, 100, add->stream);
}

int device_run_alone(char *program, const char *test)
{
    int status = 1;
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execl(program, program, test, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        printf("[  FAILED  ] %s, status %x\n", test, (unsigned)status);
    return status != 0;
}
