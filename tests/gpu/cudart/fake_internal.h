/* fake_internal.h - shared by the files of the fake CUDA runtime.
 *
 * One lock (fake_lock) guards all of its state. It is hidden from the thread sanitizer and orders nothing:
 * the order by a stream, an event or a synchronisation is reported to the sanitizer by hand, so that a wait
 * that is missing is a report in whatever order things happened to run. */
#ifndef MUSTER_TESTS_GPU_FAKE_INTERNAL_H
#define MUSTER_TESTS_GPU_FAKE_INTERNAL_H

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/gpu/cudart/fake_cudart.h"

#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#define FAKE_RELEASE(p) __tsan_release(p)
#define FAKE_ACQUIRE(p) __tsan_acquire(p)
#else
#define FAKE_RELEASE(p) (void)(p)
#define FAKE_ACQUIRE(p) (void)(p)
#endif

enum { FAKE_DEVICES = 16 };

/* ---- the lock (faults.cpp) ---- */

void fake_sync_hide(); /* from here on the sanitizer takes no notice of this thread's locks */
void fake_sync_show();
/* With the lock held, where the sanitizer takes no notice even of orders that are told: these two are told.
 */
void fake_held_release(void *p);
void fake_held_acquire(void *p);
/* Holds the lock for a scope. */
struct fake_locked {
    std::unique_lock<std::mutex> lock;
    fake_locked();
    ~fake_locked();
};

/* ---- errors (faults.cpp) ---- */

const char *fake_setting(const char *name); /* the environment's; "" where it is not set */
/* Whether a setting NAME:N[@R] means this call. */
bool fake_means(const char *setting, const char *name, uint64_t call);
/* Microseconds of FAKE_CUDA_COST for this name; 0: none. */
uint64_t fake_cost_us(const char *name);
/* The error that all calls on the device give; cudaSuccess: none. Of the calling thread's device. */
cudaError_t fake_sticky();
/* The same, met by a call of the runtime: from then on it is the thread's last error. */
cudaError_t fake_meet_sticky();
void fake_set_sticky(int device, cudaError_t error);
/* A line on standard error: the mistake, for readers of a refusal. */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* First in every faked function. */
#define FAKE_ENTER(function, error)                                                                          \
    do {                                                                                                     \
        const bool refused_ = fake_refuse(function) != 0;                                                    \
        if (fake_in_host_call()) {                                                                           \
            fake_complain("%s is called by a host function of a stream", function);                          \
            return fake_cudart_fail(cudaErrorNotPermitted);                                                  \
        }                                                                                                    \
        if (fake_check_recording(function) != cudaSuccess)                                                   \
            return cudaErrorStreamCaptureUnsupported;                                                        \
        if (fake_meet_sticky() != cudaSuccess)                                                               \
            return fake_sticky();                                                                            \
        if (refused_)                                                                                        \
            return fake_cudart_fail(error);                                                                  \
    } while (0)
/* The same where the function works on a device. */
#define FAKE_ENTER_DEVICE(function, error)                                                                   \
    do {                                                                                                     \
        FAKE_ENTER(function, error);                                                                         \
        if (fake_driver() != cudaSuccess)                                                                    \
            return fake_cudart_fail(fake_driver());                                                          \
    } while (0)

/* ---- devices (devices.cpp) ---- */

int fake_device(); /* the calling thread's */
void fake_device_use(int device);
int fake_devices();         /* how many */
cudaError_t fake_driver();  /* why no device can be used; cudaSuccess: one can */
size_t fake_device_bytes(); /* each has so many */

/* ---- memory (memory.cpp) ---- */

/* The calling thread, a stream's, may touch device memory; and no longer. */
void fake_memory_open();
void fake_memory_close();
/* Lines of the report. */
void fake_memory_report(FILE *file);

/* ---- streams and events (streams.cpp, events.cpp) ---- */

/* One record of an event. */
struct fake_record {
    struct CUstream_st *stream = nullptr;
    uint64_t position = 0; /* in the stream */
    bool done = false;
    int64_t time_ns = 0;
    std::condition_variable changed;
};

struct fake_work {
    const char *what;
    void (*run)(void *);
    void (*dispose)(void *);
    void *argument;
    bool waits;                          /* to be run only when something waits for it */
    std::shared_ptr<fake_record> record; /* a record's */
    std::shared_ptr<fake_record> wait;   /* a wait's */
    char *order;                         /* work before the push is ordered before the run, by its address */
    std::shared_ptr<void> keep = {};     /* owner of the argument */
};

struct CUstream_st {
    int device = 0;
    uint64_t number = 0; /* counts all streams, from 1 */
    unsigned flags = cudaStreamDefault;
    int priority = 0;
    std::deque<fake_work> queue;
    uint64_t pushed = 0, done = 0, wanted = 0; /* positions; wanted: something waits for it */
    bool stop = false;
    std::condition_variable wake, progress;
    std::thread thread;
    struct fake_capture *capture = nullptr; /* while it records (graphs.cpp) */
    char finished; /* by its address: what ran before a synchronisation is ordered before it */
};

struct CUevent_st {
    int device = 0;
    bool timed = true;
    std::shared_ptr<fake_record> last; /* NULL: it was never recorded */
};

/* Whether the calling thread is inside of a function of cudaLaunchHostFunc. */
bool fake_in_host_call();

/* With the lock held. */
struct CUstream_st *fake_stream(cudaStream_t stream); /* NULL: not a live one */
bool fake_event_lives(cudaEvent_t event);
void fake_want(struct CUstream_st *stream, uint64_t position);
uint64_t fake_push(struct CUstream_st *stream, fake_work work); /* its position */
void fake_want_all(int device);                                 /* -1: all devices */
/* Waits for all that was pushed on the streams of a device, and orders it. */
void fake_drain(fake_locked &held, struct CUstream_st *stream);
void fake_drain_device(fake_locked &held, int device);
/* ---- graphs (graphs.cpp) ---- */

/* First in a function: breaks the recording of the calling thread unless the function may be recorded. */
cudaError_t fake_check_recording(const char *function);
/* With the lock held. Whether the stream records: it has the work then. */
bool fake_capture_takes(struct CUstream_st *stream, const struct fake_work &work);
/* With the lock held. cudaSuccess where the stream does not record; else its recording is broken. */
cudaError_t fake_break_capture(struct CUstream_st *stream, const char *function);
void fake_graphs_report(FILE *file);

void fake_streams_report(FILE *file);
void fake_events_report(FILE *file);
int64_t fake_now_ns();

#endif
