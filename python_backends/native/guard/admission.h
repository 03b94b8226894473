/* How many requests of a model may be under way at once, and those that wait for it.

   docs/native.md says why. One lock is over all of it; functions that need it held say so. */
#ifndef TRITONKIT_GUARD_ADMISSION_H
#define TRITONKIT_GUARD_ADMISSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef void (*release_function)(void *request, uint32_t flags, void *payload);

struct request;

/* A model by its name, kept as long as the server runs. */
struct model {
    struct model *next_of_place;
    char *name;
    atomic_uint_fast64_t read_at; /* the state of the repository when its limit was read */
    atomic_uint limit;            /* 0: none */
    /* Under the lock. */
    struct model *next_limited;
    bool is_listed;
    uint32_t in_flight;
    struct request *first, *last; /* those that wait */
};

enum stage { IDLE, WAITING, PASSED_ON, RUNNING };

/* A request for a model with a limit, from its making to its deletion. All under the lock. */
struct request {
    void *handle;
    uint64_t serial; /* another request may come to have the same handle */
    struct model *model;
    release_function release;
    void *release_payload;
    void *server, *trace;
    int64_t until_ns; /* its own timeout; INT64_MAX: none */
    enum stage stage;
    bool counted;
    bool cancelled;
    struct request *next_of_place, *next_waiting;
};

/* models.c */
struct model *model_named(void *server, const char *name);

/* requests.c: all but `requests_any` with the lock. */
bool requests_any(void);
struct request *requests_add(void *handle, struct model *model);
struct request *requests_find(const void *handle);
void requests_remove(struct request *request);

/* admission.c */
void admission_made(void *handle, void *server, const char *name);
bool admission_has_room(const struct model *model);
void admission_count(struct request *request);
void admission_uncount(struct request *request);

/* waiting.c: all but `waiting_close` and `waiting_list` with the lock. */
extern pthread_mutex_t admission_lock;
bool waiting_begin(struct request *request);
void waiting_leave(struct request *request);
void waiting_cancel(struct request *request);
void waiting_news(void);
void waiting_list(struct model *model);
bool waiting_is_closed(void);
void waiting_close(void);

#endif
