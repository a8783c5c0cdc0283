/* exit_code.h - the exit codes of every program of muster: one table, read by the code and by the
 * documentation.
 *
 * A failing worker's own code is passed through, and 128+n stands for signal n, so other codes are those
 * of the first cause. 138 is above 127 so that a PyTorchJob with restartPolicy ExitCode retries it. Codes up
 * to 127 say that every other start would end the same way: wrong input, or a failure of the program itself.
 *  */
#ifndef MUSTER_PROTO_EXIT_CODE_H
#define MUSTER_PROTO_EXIT_CODE_H

/* symbol, value, meaning */
#define MUSTER_EXIT_CODES(X)                                                                                 \
    X(EXIT_CODE_OK, 0, "every worker exited 0")                                                              \
    X(EXIT_CODE_FAILURE, 1, "a failure of muster itself, or a worker's own exit code 1")                     \
    X(EXIT_CODE_USAGE, 2,                                                                                    \
      "bad usage: a flag, a setting, a configuration file or its data is wrong, or its plan does not fit "   \
      "into memory")                                                                                         \
    X(EXIT_CODE_CANNOT_EXECUTE, 126, "the program was found but cannot be executed")                         \
    X(EXIT_CODE_NOT_FOUND, 127, "the program was not found")                                                 \
    X(EXIT_CODE_HANGUP, 129, "stopped by SIGHUP")                                                            \
    X(EXIT_CODE_INTERRUPT, 130, "stopped by SIGINT (Ctrl-C)")                                                \
    X(EXIT_CODE_QUIT, 131, "stopped by SIGQUIT")                                                             \
    X(EXIT_CODE_NODE, 138,                                                                                   \
      "a lost node, or peers that were lost and nothing else, a rendezvous time-out, an unfit node or an "   \
      "unkillable worker; or a disk, a network, memory or a permission failed muster-train, or its last "    \
      "checkpoint is not saved; retryable")                                                                  \
    X(EXIT_CODE_TERMINATED, 143, "stopped by SIGTERM")                                                       \
    X(EXIT_CODE_SECOND_RUN, 200,                                                                             \
      "nothing was run: another run of the same job had this node's place; retryable")

enum exit_code {
#define MUSTER_EXIT_ENUM(symbol, value, meaning) symbol = value,
    MUSTER_EXIT_CODES(MUSTER_EXIT_ENUM)
#undef MUSTER_EXIT_ENUM
        EXIT_CODE_ENVIRONMENT = EXIT_CODE_NODE, /* for a worker: it may be started again */
    EXIT_CODE_SIGNAL_BASE = 128                 /* + the signal's number */
};

/* Exit code of a program that ends with this error (enum muster_error_code). EXIT_CODE_USAGE: wrong input,
 * which every start would meet again; EXIT_CODE_ENVIRONMENT: disk, network, memory, permission or another
 * process, which may do better the next time; EXIT_CODE_FAILURE: the rest. */
int exit_code_of_error(int code);

#endif
