/* The limit of each model, read from its configuration, where the build wrote it as a parameter:
   Triton 2.51 has no field for it. It is read at the first request after each change of the
   repository, so that models can be loaded and reloaded as ever. */
#include "admission.h"
#include "real.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETER "tritonkit.max_inflight_requests"

/* No string of the JSON can hold these quotes without a backslash, so nothing else looks alike. */
static const char BEFORE[] = "\"" PARAMETER "\":{\"string_value\":\"";

enum { PLACES = 256, NEWEST = -1, CONFIGURATION_FORM = 1 };

static struct model *_Atomic places[PLACES]; /* models are added, and never taken away */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint_fast64_t state = 1; /* of the repository */

static struct model *_Atomic *place_of(const char *name) {
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619U;
    }
    return &places[hash % PLACES];
}

static struct model *find(struct model *_Atomic *place, const char *name) {
    struct model *model = atomic_load_explicit(place, memory_order_acquire);
    while (model != NULL && strcmp(model->name, name) != 0) {
        model = model->next_of_place;
    }
    return model;
}

static struct model *add(struct model *_Atomic *place, const char *name) {
    pthread_mutex_lock(&adding);
    struct model *model = find(place, name);
    if (model == NULL && (model = calloc(1, sizeof *model)) != NULL) {
        model->name = strdup(name);
        if (model->name == NULL) {
            free(model);
            model = NULL;
        } else {
            model->next_of_place = atomic_load(place);
            atomic_store_explicit(place, model, memory_order_release);
        }
    }
    pthread_mutex_unlock(&adding);
    return model;
}

static uint32_t limit_in(const char *name, const char *json, size_t length) {
    const char *const found = memmem(json, length, BEFORE, sizeof BEFORE - 1);
    if (found == NULL) {
        return 0;
    }
    char text[16] = "";
    snprintf(text, sizeof text, "%.*s", (int)(sizeof text - 1), found + sizeof BEFORE - 1);
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == '"' && value <= INT32_MAX) {
        return (uint32_t)value;
    }
    text[strcspn(text, "\"")] = '\0';
    fprintf(stderr,
            "tritonkit guard: parameter " PARAMETER
            " of model %s: found %s, wanted a whole number"
            " from 0 to %d; its requests have no bound\n",
            name, text, INT32_MAX);
    return 0;
}

static void *read_limit(void *server, const char *name, uint32_t *limit) {
    void *message = NULL;
    const char *json = NULL;
    size_t length = 0;
    void *error =
        real_TRITONSERVER_ServerModelConfig(server, name, NEWEST, CONFIGURATION_FORM, &message);
    if (error != NULL) {
        return error;
    }
    error = real_TRITONSERVER_MessageSerializeToJson(message, &json, &length);
    if (error == NULL) {
        *limit = limit_in(name, json, length);
    }
    real_TRITONSERVER_MessageDelete(message);
    return error;
}

static void read_again(void *server, struct model *model, uint64_t now) {
    uint32_t limit = 0;
    void *const error = read_limit(server, model->name, &limit);
    if (error != NULL) { /* it has just gone: the next request tries again */
        real_TRITONSERVER_ErrorDelete(error);
        return;
    }
    if (atomic_exchange(&model->limit, limit) != limit) {
        waiting_list(model);
    }
    atomic_store_explicit(&model->read_at, now, memory_order_release);
}

/* NULL where there is no memory for it. */
struct model *model_named(void *server, const char *name) {
    const uint64_t now = atomic_load_explicit(&state, memory_order_acquire);
    struct model *_Atomic *const place = place_of(name);
    struct model *model = find(place, name);
    if (model == NULL) {
        model = add(place, name);
    }
    if (model != NULL && atomic_load_explicit(&model->read_at, memory_order_acquire) != now) {
        read_again(server, model, now);
    }
    return model;
}

uint64_t models_state(void) {
    return atomic_load_explicit(&state, memory_order_acquire);
}

/* Whatever changes the repository. The state changes before it and after it: between them a
   configuration may be read that is about to go. */
#define CHANGES(name, parameters, arguments)                          \
    EXPORTED void *TRITONSERVER_Server##name parameters {             \
        atomic_fetch_add(&state, 1);                                  \
        void *const error = real_TRITONSERVER_Server##name arguments; \
        atomic_fetch_add(&state, 1);                                  \
        return error;                                                 \
    }

CHANGES(LoadModel, (void *server, const char *model), (server, model))
CHANGES(LoadModelWithParameters,
        (void *server, const char *model, const void **parameters, uint64_t count),
        (server, model, parameters, count))
CHANGES(UnloadModel, (void *server, const char *model), (server, model))
CHANGES(UnloadModelAndDependents, (void *server, const char *model), (server, model))
CHANGES(PollModelRepository, (void *server), (server))
