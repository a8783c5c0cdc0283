/* earlier.c - functions that Debian 12's headers and archives call and glibc 2.28 lacks, for all shipped
 * files.
 *
 * Linked into the shipped programs and libraries, these come before libc's own of the same name, which
 * nothing else sees. Libraries of Debian's that are shipped unchanged find these functions in
 * libmuster_glibc.so, which exports glibc.map's. packages/glibc.py refuses files that would need a newer
 * glibc. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __GLIBC_PREREQ(2, 30)
pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* libstdc++ waits so for times of the monotonic clock. glibc 2.28 can wait for the clock that the condition
 * was made with, and libstdc++ makes none: the real-time one. That may be set back while we wait, so a wait
 * is a second at most: its caller looks and waits again, as after any wake-up without a reason. */
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until)
{
    struct timespec now, real;
    if (clock == CLOCK_REALTIME)
        return pthread_cond_timedwait(condition, mutex, until);
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0)
        return EINVAL;
    const int64_t second = 1000000000;
    const int64_t seconds = until->tv_sec - now.tv_sec; /* "for ever" is a large number of them */
    const int64_t whole =
        (seconds < 2 ? seconds < -1 ? -1 : seconds : 2) * second + until->tv_nsec - now.tv_nsec;
    const int64_t left = whole < 0 ? 0 : whole < second ? whole : second;
    real.tv_sec += (real.tv_nsec + left) / second;
    real.tv_nsec = (long)((real.tv_nsec + left) % second);
    const int result = pthread_cond_timedwait(condition, mutex, &real);
    return result == ETIMEDOUT && left < whole ? 0 : result;
}
#endif

#if __GLIBC_PREREQ(2, 32)
extern char __libc_single_threaded;
char __libc_single_threaded = 0; /* not known: counts of references are atomic */
#endif

/* The kernel's struct stat is glibc's where a long has 64 bits. */
#if __GLIBC_PREREQ(2, 33)
_Static_assert(sizeof(long) == 8, "the kernel's struct stat has another layout");
int fstatat(int folder, const char *restrict path, struct stat *restrict result, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, result, flags);
}

int stat(const char *restrict path, struct stat *restrict result)
{
    return fstatat(AT_FDCWD, path, result, 0);
}

int lstat(const char *restrict path, struct stat *restrict result)
{
    return fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *result)
{
    return (int)syscall(SYS_fstat, fd, result);
}
#endif

/* Where GCC 12's unwinder looks for the tables of a place in the code. */
#if __GLIBC_PREREQ(2, 35)
struct code_search {
    uintptr_t place;
    struct dl_find_object *found;
};

static int search_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct code_search *search = argument;
    const ElfW(Phdr) *tables = NULL, *code = NULL;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && search->place - (object->dlpi_addr + part->p_vaddr) < part->p_memsz)
            code = part;
        else if (part->p_type == PT_GNU_EH_FRAME)
            tables = part;
    }
    if (!code || !tables)
        return 0;
    search->found->dlfo_flags = 0;
    search->found->dlfo_map_start = (void *)(object->dlpi_addr + code->p_vaddr); // NOLINT
    search->found->dlfo_map_end = (char *)search->found->dlfo_map_start + code->p_memsz;
    search->found->dlfo_link_map = NULL;
    search->found->dlfo_eh_frame = (void *)(object->dlpi_addr + tables->p_vaddr); // NOLINT
    return 1;
}

int _dl_find_object(void *place, struct dl_find_object *result)
{
    struct code_search search = {.place = (uintptr_t)place, .found = result};
    return dl_iterate_phdr(search_object, &search) == 1 ? 0 : -1;
}
#endif
