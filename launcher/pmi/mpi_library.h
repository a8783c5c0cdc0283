/* mpi_library.h - the MPI library with which a program is linked, by its file alone. */
#ifndef MUSTER_LAUNCHER_PMI_MPI_LIBRARY_H
#define MUSTER_LAUNCHER_PMI_MPI_LIBRARY_H

#include <stddef.h>

enum mpi_library {
    MPI_LIBRARY_NONE, /* none, or unknown: a script, a static program, a file that cannot be read */
    MPI_LIBRARY_PMI1, /* MPICH, and libraries of its ABI: Intel MPI, MVAPICH, Cray MPICH */
    MPI_LIBRARY_PMIX, /* Open MPI: it needs PMIx */
};

/* By a library's soname: libmpi.so.12, libmpich.so.12, libmpi.so.40 ... */
enum mpi_library mpi_library_of_name(const char *soname);
/* Reads the needed libraries of an ELF file of this machine's word size; soname gets the name of the one
 * found. */
enum mpi_library mpi_library_of_file(const char *path, char *soname, size_t size);
/* maps: the text of a process's /proc/PID/maps. The same where the process has loaded Open MPI; a script's
 * library is in no file that could be looked at before. */
enum mpi_library mpi_library_of_maps(const char *maps, size_t length, char *soname, size_t size);

#endif
