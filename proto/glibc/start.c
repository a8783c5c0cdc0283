/* start.c - how a shipped program starts, linked with --wrap=__libc_start_main.
 *
 * Up to glibc 2.33 a program runs its own constructors, by a function that its start file hands to libc. The
 * start file of a newer glibc hands over none, and an older libc would then run none: ours is handed over
 * instead, which newer ones call as well. */
typedef int start_function(int count, char **arguments, char **environment);

int __real___libc_start_main(start_function *main, int count, char **arguments, start_function *constructors,
                             void (*end)(void), void (*loader_end)(void), void *stack_end);
int __wrap___libc_start_main(start_function *main, int count, char **arguments, start_function *constructors,
                             void (*end)(void), void (*loader_end)(void), void *stack_end);

extern void _init(void);
extern start_function *__init_array_start[] __attribute__((visibility("hidden")));
extern start_function *__init_array_end[] __attribute__((visibility("hidden")));

/* .preinit_array is the loader's in every version. */
static int run_constructors(int count, char **arguments, char **environment)
{
    _init();
    for (start_function **each = __init_array_start; each < __init_array_end; each++)
        (void)(*each)(count, arguments, environment);
    return 0;
}

int __wrap___libc_start_main(start_function *main, int count, char **arguments, start_function *constructors,
                             void (*end)(void), void (*loader_end)(void), void *stack_end)
{
    return __real___libc_start_main(main, count, arguments, constructors ? constructors : run_constructors,
                                    end, loader_end, stack_end);
}
