/* mpi_library.c - see mpi_library.h. The file is mapped and may be damaged: each look checks its bounds.
 */
#include "launcher/pmi/mpi_library.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/base/guard.h"

enum mpi_library mpi_library_of_name(const char *soname)
{
    static const struct {
        const char *name;
        enum mpi_library library;
    } rows[] = {
        {"libmpi.so.12", MPI_LIBRARY_PMI1},    {"libmpich.so", MPI_LIBRARY_PMI1},
        {"libmpi_gnu", MPI_LIBRARY_PMI1},      {"libmpi_cray", MPI_LIBRARY_PMI1},
        {"libmpi_intel", MPI_LIBRARY_PMI1},    {"libmpicxx.so", MPI_LIBRARY_PMI1},
        {"libmpichcxx.so", MPI_LIBRARY_PMI1},  {"libmpifort.so.12", MPI_LIBRARY_PMI1},
        {"libmpichfort.so", MPI_LIBRARY_PMI1}, {"libmpi_abi.so", MPI_LIBRARY_PMI1},
        {"libopen-rte.so", MPI_LIBRARY_PMIX},  {"libmpi_cxx.so", MPI_LIBRARY_PMIX},
        {"libmpi_mpifh.so", MPI_LIBRARY_PMIX}, {"libmpi_usempif08.so", MPI_LIBRARY_PMIX},
        {"libmpi_ibm.so", MPI_LIBRARY_PMIX},   {"libmpi.so", MPI_LIBRARY_PMIX}, /* 20, 40 and so on */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(soname, rows[i].name, strlen(rows[i].name)) == 0)
            return rows[i].library;
    return MPI_LIBRARY_NONE;
}

struct image {
    const unsigned char *bytes;
    size_t size;
};

/* count things of `each` bytes at offset; NULL: they are not in the file. */
static const void *at(const struct image *image, uint64_t offset, uint64_t count, size_t each)
{
    return offset <= image->size && count <= (image->size - offset) / each ? image->bytes + offset : NULL;
}

/* The place in the file of an address of the program. */
static uint64_t offset_of(const ElfW(Phdr) * segments, int count, uint64_t address)
{
    for (int i = 0; i < count; i++)
        if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr &&
            address - segments[i].p_vaddr < segments[i].p_filesz)
            return address - segments[i].p_vaddr + segments[i].p_offset;
    return UINT64_MAX;
}

static enum mpi_library search_needed(const struct image *image, const ElfW(Phdr) * segments, int count,
                                      const ElfW(Phdr) * dynamic, char *soname, size_t size)
{
    const uint64_t entries = dynamic->p_filesz / sizeof(ElfW(Dyn));
    const ElfW(Dyn) *table = at(image, dynamic->p_offset, entries, sizeof *table);
    uint64_t names = UINT64_MAX;
    for (uint64_t i = 0; table && i < entries && table[i].d_tag != DT_NULL; i++)
        if (table[i].d_tag == DT_STRTAB)
            names = offset_of(segments, count, table[i].d_un.d_ptr);
    for (uint64_t i = 0; table && names < image->size && i < entries && table[i].d_tag != DT_NULL; i++) {
        if (table[i].d_tag != DT_NEEDED || table[i].d_un.d_val >= image->size - names)
            continue;
        const char *name = (const char *)image->bytes + names + table[i].d_un.d_val;
        const size_t left = image->size - (size_t)((const unsigned char *)name - image->bytes);
        const enum mpi_library found =
            memchr(name, '\0', left) ? mpi_library_of_name(name) : MPI_LIBRARY_NONE;
        if (found) {
            (void)snprintf(soname, size, "%s", name);
            return found;
        }
    }
    return MPI_LIBRARY_NONE;
}

enum mpi_library mpi_library_of_file(const char *path, char *soname, size_t size)
{
    enum mpi_library found = MPI_LIBRARY_NONE;
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
        (size_t)status.st_size < sizeof(ElfW(Ehdr)))
        return MPI_LIBRARY_NONE;
    struct image image = {.size = (size_t)status.st_size};
    void *mapped = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED)
        return MPI_LIBRARY_NONE;
    image.bytes = mapped;
    const ElfW(Ehdr) *header = at(&image, 0, 1, sizeof *header);
    const ElfW(Phdr) *segments = NULL;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_phentsize == sizeof *segments &&
        header->e_phoff % _Alignof(ElfW(Phdr)) == 0)
        segments = at(&image, header->e_phoff, header->e_phnum, sizeof *segments);
    for (int i = 0; segments && i < header->e_phnum && !found; i++)
        if (segments[i].p_type == PT_DYNAMIC && segments[i].p_offset % _Alignof(ElfW(Dyn)) == 0)
            found = search_needed(&image, segments, header->e_phnum, &segments[i], soname, size);
    (void)munmap(mapped, image.size); /* our own mapping: cannot fail */
    return found;
}

/* Of Open MPI the libraries that no other MPI has: a file that is named libmpi.so alone may be MPICH's. */
enum mpi_library mpi_library_of_maps(const char *maps, size_t length, char *soname, size_t size)
{
    static const char *const names[] = {"/libopen-pal.so", "/libopen-rte.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *found = memmem(maps, length, names[i], strlen(names[i]));
        if (!found)
            continue;
        const char *end = memchr(found, '\n', length - (size_t)(found - maps));
        const size_t left = (size_t)((end ? end : maps + length) - found) - 1;
        (void)snprintf(soname, size, "%.*s", (int)left, found + 1);
        return MPI_LIBRARY_PMIX;
    }
    return MPI_LIBRARY_NONE;
}
