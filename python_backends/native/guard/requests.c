/* The requests for models with a limit, by their handles. */
#include "admission.h"

#include <stdlib.h>

enum { PLACES = 4096 };

static struct request *places[PLACES];
static atomic_size_t count;
static uint64_t last_serial;

/* Without the lock, and so for all others: those have nothing to look for. */
bool requests_any(void) {
    return atomic_load_explicit(&count, memory_order_relaxed) != 0;
}

static struct request **place_of(const void *handle) {
    return &places[((uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 52];
}

/* NULL where there is no memory for it. */
struct request *requests_add(void *handle, struct model *model) {
    struct request *const request = calloc(1, sizeof *request);
    if (request != NULL) {
        struct request **const place = place_of(handle);
        request->handle = handle;
        request->serial = ++last_serial;
        request->model = model;
        request->next_of_place = *place;
        *place = request;
        atomic_fetch_add(&count, 1);
    }
    return request;
}

struct request *requests_find(const void *handle) {
    struct request *request = *place_of(handle);
    while (request != NULL && request->handle != handle) {
        request = request->next_of_place;
    }
    return request;
}

void requests_remove(struct request *request) {
    struct request **at = place_of(request->handle);
    while (*at != request) {
        at = &(*at)->next_of_place;
    }
    *at = request->next_of_place;
    atomic_fetch_sub(&count, 1);
    free(request);
}
