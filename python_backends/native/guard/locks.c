/* A deadlock of Triton's gRPC streams, undone.

   A stream has a lock, and so has each request in it. What writes an answer takes the stream's
   first and then the request's; what hears that the caller has gone takes them the other way round
   (`StreamInferResponseComplete` and `Process` of `ModelStreamInferHandler`, in 2.51 and in the
   source of 2.73). Where both come at once they wait for each other for ever, and with them every
   later stream. The thread that hears of callers has done nothing yet at that point: it gives its
   lock back until it has both, in the other one's order.

   Only locks that the program itself takes are followed, only recursive ones, which both of these
   are, and only where a thread waits with one in hand. */
#include "guard.h"
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_HELD = 4, MOST_WAITING = 64, MOST_FRAMES = 64, LOOK_MS = 5, PAUSE_MS = 1 };
enum { NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

static const char SAID[] = "tritonkit guard: a deadlock of Triton's gRPC streams was undone\n";

/* A lock that this thread has, and how many times. */
struct held {
    pthread_mutex_t *mutex;
    unsigned times;
};

static _Thread_local struct held held[MOST_HELD] __attribute__((tls_model("initial-exec")));
static _Thread_local size_t held_count __attribute__((tls_model("initial-exec")));

/* Threads that wait for a lock with another one in hand; a thread of 0 marks an empty place. */
static struct waiting {
    atomic_int thread;
    _Atomic(pthread_mutex_t *) mutex;
} waiting[MOST_WAITING];

static bool is_followed(const pthread_mutex_t *mutex, const void *caller) {
    return mutex->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP && of_program(caller);
}

static struct held *find(const pthread_mutex_t *mutex) {
    for (size_t at = 0; at < held_count; at++) {
        if (held[at].mutex == mutex) {
            return &held[at];
        }
    }
    return NULL;
}

static void note_locked(pthread_mutex_t *mutex) {
    struct held *const known = find(mutex);
    if (known != NULL) {
        known->times++;
    } else if (held_count < MOST_HELD) {
        held[held_count++] = (struct held){mutex, 1};
    }
}

static void note_unlocked(const pthread_mutex_t *mutex) {
    struct held *const known = find(mutex);
    if (known != NULL && --known->times == 0) {
        *known = held[--held_count];
    }
}

/* NULL where there is no place. */
static struct waiting *announce(pthread_mutex_t *mutex) {
    const int self = (int)syscall(SYS_gettid);
    for (size_t at = 0; at < MOST_WAITING; at++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&waiting[at].thread, &nobody, self)) {
            atomic_store(&waiting[at].mutex, mutex);
            return &waiting[at];
        }
    }
    return NULL;
}

static void withdraw(struct waiting *place) {
    atomic_store(&place->mutex, NULL);
    atomic_store(&place->thread, 0);
}

/* Whether who has the lock waits for one of this thread's. */
static bool is_deadlock(const pthread_mutex_t *mutex) {
    const int owner = *(const volatile int *)&mutex->__data.__owner;
    for (size_t at = 0; at < MOST_WAITING; at++) {
        if (atomic_load(&waiting[at].thread) == owner &&
            find(atomic_load(&waiting[at].mutex)) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether libtritonserver called what this thread does: then it is amid an answer. */
static bool writes_an_answer(void) {
    void *frames[MOST_FRAMES];
    const int count = backtrace(frames, MOST_FRAMES);
    for (int at = 0; at < count; at++) {
        Dl_info object;
        if (dladdr(frames[at], &object) != 0 && strstr(object.dli_fname, "libtritonserver")) {
            return true;
        }
    }
    return false;
}

static void unlock_held(size_t count) {
    for (size_t at = 0; at < count; at++) {
        for (unsigned times = 0; times < held[at].times; times++) {
            real_pthread_mutex_unlock(held[at].mutex);
        }
    }
}

static bool try_held(void) {
    for (size_t at = 0; at < held_count; at++) {
        for (unsigned times = 0; times < held[at].times; times++) {
            if (pthread_mutex_trylock(held[at].mutex) != 0) { /* the first time, or never */
                unlock_held(at);
                return false;
            }
        }
    }
    return true;
}

/* Take a lock without waiting for it or for those in hand with another one in hand. */
static void give_way(pthread_mutex_t *mutex) {
    const struct timespec pause = {0, PAUSE_MS * NS_PER_MS};
    unlock_held(held_count);
    real_pthread_mutex_lock(mutex);
    while (!try_held()) {
        real_pthread_mutex_unlock(mutex);
        nanosleep(&pause, NULL);
        real_pthread_mutex_lock(mutex);
    }
    const ssize_t written = write(STDERR_FILENO, SAID, sizeof SAID - 1);
    (void)written; /* a log that takes no more is no reason to stop */
}

static int lock_for_some_ms(pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* nobody sets this one back */
    until.tv_nsec += LOOK_MS * NS_PER_MS;
    until.tv_sec += until.tv_nsec / NS_PER_S;
    until.tv_nsec %= NS_PER_S;
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
}

static int lock_while_holding(pthread_mutex_t *mutex) {
    if (pthread_mutex_trylock(mutex) == 0) {
        return 0;
    }
    struct waiting *const place = announce(mutex);
    if (place == NULL) {
        return real_pthread_mutex_lock(mutex);
    }
    int error;
    while ((error = lock_for_some_ms(mutex)) == ETIMEDOUT) {
        if (is_deadlock(mutex) && !writes_an_answer()) {
            give_way(mutex);
            error = 0;
            break;
        }
    }
    withdraw(place);
    return error;
}

EXPORTED int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (!is_followed(mutex, __builtin_return_address(0))) {
        return real_pthread_mutex_lock(mutex);
    }
    const int error = held_count == 0 ? real_pthread_mutex_lock(mutex) : lock_while_holding(mutex);
    if (error == 0) {
        note_locked(mutex);
    }
    return error;
}

EXPORTED int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (is_followed(mutex, __builtin_return_address(0))) {
        note_unlocked(mutex);
    }
    return real_pthread_mutex_unlock(mutex);
}
