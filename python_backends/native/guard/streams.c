/* The open streams of one connection: a hash table with linear probing. */
#include "guard.h"

#include <stdlib.h>
#include <sys/random.h>

enum { FIRST_CAPACITY = 16 };

/* The table is half full at most. */
#define LARGEST_CAPACITY (UINT32_C(2) * MOST_STREAMS)

static atomic_uint open_calls; /* of all connections */

/* Random, or a sender could choose numbers that all meet in one place. */
static uint64_t multiplier;

__attribute__((constructor)) static void choose_multiplier(void) {
    if (getrandom(&multiplier, sizeof multiplier, GRND_NONBLOCK) != (ssize_t)sizeof multiplier) {
        multiplier = UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)(uintptr_t)&multiplier;
    }
    multiplier |= 1;
}

static uint32_t place_of(const struct streams *streams, uint32_t number) {
    return (uint32_t)((number * multiplier) >> 32) & (streams->capacity - 1);
}

static uint32_t next(const struct streams *streams, uint32_t place) {
    return (place + 1) & (streams->capacity - 1);
}

struct stream *streams_find(const struct streams *streams, uint32_t number) {
    if (streams->used == 0 || number == 0) {
        return NULL;
    }
    uint32_t place = place_of(streams, number);
    while (streams->places[place].number != 0) {
        if (streams->places[place].number == number) {
            return &streams->places[place];
        }
        place = next(streams, place);
    }
    return NULL;
}

static void put(struct streams *streams, struct stream stream) {
    uint32_t place = place_of(streams, stream.number);
    while (streams->places[place].number != 0) {
        place = next(streams, place);
    }
    streams->places[place] = stream;
    streams->used++;
}

static bool grow(struct streams *streams) {
    const uint32_t capacity = streams->capacity == 0 ? FIRST_CAPACITY : 2 * streams->capacity;
    if (capacity > LARGEST_CAPACITY) {
        return false;
    }
    struct streams larger = {calloc(capacity, sizeof(struct stream)), capacity, 0,
                             streams->refused};
    if (larger.places == NULL) {
        return false;
    }
    for (uint32_t place = 0; place < streams->capacity; place++) {
        if (streams->places[place].number != 0) {
            put(&larger, streams->places[place]);
        }
    }
    free(streams->places);
    *streams = larger;
    return true;
}

/* False: too many are open, or there is no memory. */
bool streams_add(struct streams *streams, uint32_t number) {
    if (2 * streams->used >= streams->capacity && !grow(streams)) {
        return false;
    }
    put(streams, (struct stream){.number = number});
    atomic_fetch_add_explicit(&open_calls, 1, memory_order_relaxed);
    return true;
}

uint32_t streams_open(void) {
    return atomic_load_explicit(&open_calls, memory_order_relaxed);
}

void streams_remove(struct streams *streams, uint32_t number) {
    const struct stream *found = streams_find(streams, number);
    if (found == NULL) {
        return;
    }
    streams->refused -= found->refused;
    uint32_t hole = (uint32_t)(found - streams->places);
    uint32_t place = next(streams, hole);
    while (streams->places[place].number != 0) {
        /* One that may lie in the hole moves there, so that no search ends too early. */
        const uint32_t home = place_of(streams, streams->places[place].number);
        const uint32_t mask = streams->capacity - 1;
        if (((place - home) & mask) >= ((place - hole) & mask)) {
            streams->places[hole] = streams->places[place];
            hole = place;
        }
        place = next(streams, place);
    }
    streams->places[hole].number = 0;
    streams->used--;
    atomic_fetch_sub_explicit(&open_calls, 1, memory_order_relaxed);
}

void streams_clear(struct streams *streams) {
    free(streams->places);
    atomic_fetch_sub_explicit(&open_calls, streams->used, memory_order_relaxed);
    *streams = (struct streams){NULL, 0, 0, 0};
}
