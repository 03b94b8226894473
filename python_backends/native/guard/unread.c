/* Ends connections whose clients leave their answers unread, which grpc-core keeps without a bound:
   after a long time in which nothing of them is taken, or soon where they make the process grow.
   The more it has grown, the faster a client must read to be kept. A thread of the guard's own
   looks, and sleeps while no answer waits for a client. */
#include "guard.h"
#include "real.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define LOOK_NS (NS_PER_S / 10)
#define MIB (INT64_C(1) << 20)

enum {
    LEAST_BYTES = 128, /* of each call that waits, from one look to the next */
    MORE_SHIFT = 4,    /* 16 times as many for each time that the limit fits into the growth */
    MOST_TIMES = 4,
    ENOUGH_BYTES = 1 << 16, /* of all calls of a connection: 5 Mbit/s */
    MOST_AHEAD = 10,
    LAST_TIMES = 8,         /* from then on they are not enough */
    RISES_PER_LIMIT = 4096, /* looks in which the baseline may rise by the limit */
    TRIM_MIB = 32,
    TRIM_CALLS = 1024,
    SETTLE_S = 10,
};

static sem_t news;
static atomic_bool awake;
static pthread_once_t begun = PTHREAD_ONCE_INIT;

/* All else is the thread's alone. */
static int64_t own, baseline, growth; /* bytes: now, without unread answers, and what is between */
static uint64_t calls;                /* that waited at the last look */
static int64_t waited_ns, said_ns;    /* when a call waited last, and when ends were written */
static int64_t end_again_ns, trim_ns; /* not before */
static unsigned trims;                /* that are due */
static unsigned ended, ended_calls;   /* not said yet */
static uint64_t repository;

/* Seen in one look. */
struct look {
    int64_t now_ns;
    uint64_t least; /* bytes that a client is to take of each call that waits */
    uint64_t calls; /* that wait */
    unsigned slow;  /* connections that took less, for a whole look or longer */
    uint32_t most;  /* calls that wait on one that may be ended */
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Memory that is no file's, of which answers are a part. */
static int64_t own_bytes(void) {
    char text[128] = "";
    long long resident = 0, shared = 0;
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return own;
    }
    const ssize_t length = read(file, text, sizeof text - 1);
    real_close(file);
    if (length <= 0 || sscanf(text, "%*s %lld %lld", &resident, &shared) != 2) {
        return own;
    }
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

static int64_t limit_bytes(void) {
    return guard_settings.unread_mib * MIB;
}

/* How many times the limit fits into the growth; the process may have become smaller as well. */
static int64_t times_grown(void) {
    return growth > 0 ? growth / limit_bytes() : 0;
}

static uint64_t least_bytes(void) {
    const int64_t times = times_grown();
    return (uint64_t)LEAST_BYTES << MORE_SHIFT * (times < MOST_TIMES ? times : MOST_TIMES);
}

/* Large answers of several calls at once grow the process, too, and come no faster than the
   client's line. */
static uint64_t least_of(const struct unread *unread, const struct look *look) {
    const uint64_t least = look->least * unread->waiting;
    return least < ENOUGH_BYTES || times_grown() >= LAST_TIMES ? least : ENOUGH_BYTES;
}

/* Bytes of answers that have reached the client since the last look. The system says that a socket
   has room again when a part of what it keeps is gone, which may take seconds. */
static uint64_t newly_taken(int descriptor, struct connection *connection) {
    int kept = 0;
    const bool is_known = ioctl(descriptor, SIOCOUTQ, &kept) == 0 && kept > 0;
    const uint64_t delivered = connection->delivered;
    const uint64_t outside = is_known && (uint64_t)kept < delivered ? (uint64_t)kept : 0;
    const uint64_t before = connection->unread.taken;
    if (delivered - outside <= before) {
        return 0;
    }
    connection->unread.taken = delivered - outside;
    return connection->unread.taken - before;
}

/* For how long a client must have read too slowly to be one that is ended. */
static int64_t patience_ns(void) {
    const int64_t times = times_grown();
    return times < 2 ? NS_PER_S : times < 4 ? 3 * LOOK_NS : LOOK_NS;
}

static bool is_slow(const struct unread *unread, int64_t now) {
    return now - unread->slow_since_ns >= patience_ns();
}

static bool is_still(const struct unread *unread, int64_t now) {
    return now - unread->still_since_ns >= guard_settings.unread_s * NS_PER_S;
}

static void clear(struct connection *connection) {
    connection->unread.waiting = 0;
    atomic_store_explicit(&connection->suspect, false, memory_order_relaxed);
}

/* Without its lock the descriptor may be another connection's. The client sees a reset, and the
   system keeps nothing for it. */
static void end(int descriptor, struct connection *connection) {
    const struct linger none = {1, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shutdown(descriptor, SHUT_RDWR);
    ended++;
    ended_calls += connection->unread.waiting;
    clear(connection);
    connection->broken = true;
}

/* Who reads much may then pause for as many looks, as a client does that decodes an answer. */
static void praise(struct unread *unread, int64_t now, uint64_t looks) {
    const int64_t until = now + LOOK_NS * (int64_t)(looks < MOST_AHEAD ? looks : MOST_AHEAD);
    unread->slow_since_ns = unread->slow_since_ns > until ? unread->slow_since_ns : until;
}

static void look_at(int descriptor, struct connection *connection, struct look *look) {
    struct unread *const unread = &connection->unread;
    const bool is_new = unread->waiting == 0;
    const uint64_t taken = newly_taken(descriptor, connection);
    unread->waiting = connection->broken ? 0 : windows_waiting(connection);
    if (unread->waiting == 0) {
        clear(connection);
        return;
    }
    if (is_new || taken >= least_of(unread, look)) {
        praise(unread, look->now_ns, is_new ? 0 : taken / least_of(unread, look));
    }
    if (is_new || taken > 0) {
        unread->still_since_ns = look->now_ns;
    }
    look->calls += unread->waiting;
    look->slow += unread->slow_since_ns < look->now_ns;
    if (is_still(unread, look->now_ns)) {
        end(descriptor, connection);
    } else if (is_slow(unread, look->now_ns) && unread->waiting > look->most) {
        look->most = unread->waiting;
    }
}

/* Those with the most calls go first: a caller that has paused a stream or two may be honest. */
static void end_at(int descriptor, struct connection *connection, struct look *look) {
    const struct unread *const unread = &connection->unread;
    if (unread->waiting > look->most / 2 && is_slow(unread, look->now_ns)) {
        end(descriptor, connection);
    }
}

/* Do it for each connection that may have unread answers. */
static void each(void (*act)(int, struct connection *, struct look *), struct look *look) {
    const int count = connections_end();
    for (int descriptor = 0; descriptor < count; descriptor++) {
        struct connection *const connection = connection_at(descriptor);
        if (connection == NULL ||
            !atomic_load_explicit(&connection->suspect, memory_order_relaxed)) {
            continue;
        }
        pthread_mutex_lock(&connection->lock);
        if (atomic_load_explicit(&connection->followed, memory_order_relaxed)) {
            act(descriptor, connection, look);
        }
        pthread_mutex_unlock(&connection->lock);
    }
}

/* While answers wait, and until what they took may have come back, the process' growth counts as
   theirs, unless a model was loaded. While none waits for long the baseline follows the process, so
   slowly that nobody can push it up by reading now and then. */
static void set_baseline(const struct look *look) {
    const uint64_t changes = models_state();
    const int64_t rise = limit_bytes() / RISES_PER_LIMIT;
    if (changes != repository) {
        baseline = own;
    } else if (look->calls > 0 && look->slow == 0 && own > baseline) {
        baseline += own - baseline < rise ? own - baseline : rise;
    }
    repository = changes;
}

/* The allocator keeps what was freed between blocks that are in use, and grpc-core takes its time
   to free the calls of many connections. */
static void give_back(const struct look *look, bool is_any_ended) {
    if (is_any_ended || look->calls + TRIM_CALLS < calls) {
        trims = SETTLE_S;
    }
    calls = look->calls;
    if (trims > 0 && look->now_ns >= trim_ns) {
        malloc_trim(0);
        own = own_bytes();
        trims = own - baseline > TRIM_MIB * MIB ? trims - 1 : 0;
        trim_ns = now_ns() + NS_PER_S;
    }
}

static void say(int64_t now) {
    if (ended > 0 && now - said_ns >= SETTLE_S * NS_PER_S) {
        dprintf(STDERR_FILENO,
                "tritonkit guard: ended %u connections that left the answers to %u calls unread; "
                "memory had grown by %lld MiB\n",
                ended, ended_calls, (long long)(growth / MIB));
        ended = ended_calls = 0;
        said_ns = now;
    }
}

static bool is_to_end(const struct look *look, int64_t before) {
    const bool rises = growth > 2 * limit_bytes() && own > before;
    return growth > limit_bytes() && look->most > 0 && (look->now_ns >= end_again_ns || rises);
}

/* False: nothing is left to look at. */
static bool look_once(void) {
    const int64_t before = own;
    own = own_bytes();
    growth = own - baseline;
    struct look look = {.now_ns = now_ns(), .least = least_bytes()};
    const unsigned ended_before = ended;
    each(look_at, &look);
    if (is_to_end(&look, before)) {
        each(end_at, &look);
    }
    const bool is_any_ended = ended > ended_before;
    if (is_any_ended) {
        end_again_ns = look.now_ns + 2 * NS_PER_S;
        trim_ns = look.now_ns + NS_PER_S / 2;
    }
    if (is_any_ended || look.calls > 0) {
        waited_ns = look.now_ns;
    }
    say(look.now_ns);
    give_back(&look, is_any_ended);
    set_baseline(&look);
    return look.now_ns - waited_ns < SETTLE_S * NS_PER_S;
}

static bool is_busy(void) {
    if (look_once()) {
        return true;
    }
    atomic_store(&awake, false); /* who finds that an answer waits wakes the thread from now on */
    return look_once();
}

static void *run(void *unused) {
    const struct timespec pause = {0, LOOK_NS};
    (void)unused;
    for (;;) {
        while (sem_wait(&news) != 0) {
        }
        own = baseline = own_bytes();
        do {
            nanosleep(&pause, NULL);
        } while (is_busy());
    }
    return NULL;
}

static void begin(void) {
    sigset_t all, before;
    pthread_t thread;
    sem_init(&news, 0, 0);
    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, NULL) == 0) {
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void unread_wake(void) {
    pthread_once(&begun, begin);
    if (!atomic_exchange(&awake, true)) {
        sem_post(&news);
    }
}
