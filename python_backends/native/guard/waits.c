/* A wake-up that Triton's batcher misses, made good.

   With a bound (`max_queue_size`, `default_timeout`, `priority_levels`) the batcher forms a batch
   only when an instance is free, and waits for that up to 500 ms at a time
   (`DynamicBatchScheduler::WaitForPayloadSlotAvailable`, in 2.51 and up to 26.07). An instance
   wakes it at the end of a run, a moment before it counts itself as free: a batcher that looks in
   between sleeps on, and nobody wakes it again but a new request. Callers who wait for answers send
   none.

   That wait has its mutex on the waiting thread's own stack, so no other thread can change what it
   waits for under it: it must look now and then by itself. The guard lets it do so soon after each
   wake-up, and ever less often after that. To the waiting code these are spurious wake-ups, which
   every wait on a condition must allow. All other waits are as they were. */
#include "guard.h"
#include "real.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { FIRST_LOOK_NS = 100000, LONGEST_PAUSE_NS = 20000000, NS_PER_S = 1000000000 };
/* How far from the frame that waits its mutex may lie to be its own. */
enum { OWN_FRAME_BYTES = 4096 };

/* The wait that this thread was last sent back from before its time. */
static _Thread_local struct {
    const pthread_cond_t *condition;
    struct timespec until;
    int64_t pause_ns;
} last __attribute__((tls_model("initial-exec")));

static bool is_in_own_frame(const void *mutex, const void *frame) {
    return (uintptr_t)mutex - (uintptr_t)frame < OWN_FRAME_BYTES;
}

static bool is_earlier(const struct timespec *one, const struct timespec *other) {
    return one->tv_sec < other->tv_sec ||
           (one->tv_sec == other->tv_sec && one->tv_nsec < other->tv_nsec);
}

static int64_t next_pause_ns(const pthread_cond_t *condition, const struct timespec *until) {
    const bool goes_on = last.condition == condition && last.until.tv_sec == until->tv_sec &&
                         last.until.tv_nsec == until->tv_nsec;
    if (!goes_on) {
        return FIRST_LOOK_NS;
    }
    return last.pause_ns * 2 < LONGEST_PAUSE_NS ? last.pause_ns * 2 : LONGEST_PAUSE_NS;
}

EXPORTED int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                    clockid_t clock, const struct timespec *until) {
    struct timespec look;
    if (!is_in_own_frame(mutex, __builtin_frame_address(0)) || clock_gettime(clock, &look) != 0) {
        return real_pthread_cond_clockwait(condition, mutex, clock, until);
    }
    const int64_t pause_ns = next_pause_ns(condition, until);
    last.condition = NULL;
    look.tv_nsec += pause_ns;
    look.tv_sec += look.tv_nsec / NS_PER_S;
    look.tv_nsec %= NS_PER_S;
    if (!is_earlier(&look, until)) {
        return real_pthread_cond_clockwait(condition, mutex, clock, until);
    }
    const int error = real_pthread_cond_clockwait(condition, mutex, clock, &look);
    if (error != ETIMEDOUT) {
        return error;
    }
    last.condition = condition;
    last.until = *until;
    last.pause_ns = pause_ns;
    return 0;
}
