/* A bound on the requests of an ensemble that are under way at once (`max_inflight_requests`, which
   Triton has from 25.11 on). Requests that the program makes, and those of Python models, are
   counted from where they begin until Triton releases them: then no step works on them any more.
   Those beyond the bound wait (waiting.c); to the caller it is as if the first step had a queue. */
#include "admission.h"
#include "real.h"

bool admission_has_room(const struct model *model) {
    const uint32_t limit = atomic_load(&model->limit);
    return limit == 0 || model->in_flight < limit;
}

void admission_count(struct request *request) {
    request->counted = true;
    request->model->in_flight++;
}

void admission_uncount(struct request *request) {
    if (request->counted) {
        request->counted = false;
        request->model->in_flight--;
        waiting_news();
    }
}

/* A request was made: from now on it is known, if its model has a limit. */
void admission_made(void *handle, void *server, const char *name) {
    struct model *const model = model_named(server, name);
    if (model == NULL || atomic_load_explicit(&model->limit, memory_order_relaxed) == 0) {
        return;
    }
    pthread_mutex_lock(&admission_lock);
    requests_add(handle, model);
    pthread_mutex_unlock(&admission_lock);
}

/* Triton is done with a request. Whoever made it may delete it, so it is let go of first. */
static void released(void *handle, uint32_t flags, void *payload) {
    struct request *const request = payload;
    pthread_mutex_lock(&admission_lock);
    const release_function release = request->release;
    void *const release_payload = request->release_payload;
    request->stage = IDLE;
    admission_uncount(request);
    pthread_mutex_unlock(&admission_lock);
    release(handle, flags, release_payload);
}

EXPORTED void *TRITONSERVER_InferenceRequestSetReleaseCallback(void *handle,
                                                               release_function release,
                                                               void *payload) {
    if (requests_any()) {
        pthread_mutex_lock(&admission_lock);
        struct request *const request = requests_find(handle);
        if (request != NULL) {
            request->release = release;
            request->release_payload = payload;
            release = released;
            payload = request;
        }
        pthread_mutex_unlock(&admission_lock);
    }
    return real_TRITONSERVER_InferenceRequestSetReleaseCallback(handle, release, payload);
}

enum way { FREE, COUNTED, WAITS };

static enum way way_of(void *server, void *handle, void *trace) {
    pthread_mutex_lock(&admission_lock);
    enum way way = FREE;
    struct request *const request = requests_find(handle);
    if (request != NULL && request->release != NULL && !waiting_is_closed()) {
        way = COUNTED;
        request->server = server;
        request->trace = trace;
        request->cancelled = false;
        const struct model *const model = request->model;
        if (model->first != NULL || !admission_has_room(model)) {
            way = waiting_begin(request) ? WAITS : COUNTED;
        }
        if (way == COUNTED) {
            request->stage = RUNNING;
            admission_count(request);
        }
    }
    pthread_mutex_unlock(&admission_lock);
    return way;
}

static void take_back(const void *handle) {
    pthread_mutex_lock(&admission_lock);
    struct request *const request = requests_find(handle);
    request->stage = IDLE;
    admission_uncount(request);
    pthread_mutex_unlock(&admission_lock);
}

EXPORTED void *TRITONSERVER_ServerInferAsync(void *server, void *handle, void *trace) {
    const enum way way = requests_any() ? way_of(server, handle, trace) : FREE;
    if (way == WAITS) {
        return NULL;
    }
    void *const error = real_TRITONSERVER_ServerInferAsync(server, handle, trace);
    if (error != NULL && way == COUNTED) { /* its maker has it again */
        take_back(handle);
    }
    return error;
}

EXPORTED void *TRITONSERVER_InferenceRequestCancel(void *handle) {
    if (requests_any()) {
        pthread_mutex_lock(&admission_lock);
        struct request *const request = requests_find(handle);
        const bool is_held =
            request != NULL && (request->stage == WAITING || request->stage == PASSED_ON);
        if (is_held) {
            waiting_cancel(request);
        }
        pthread_mutex_unlock(&admission_lock);
        if (is_held) {
            return NULL;
        }
    }
    return real_TRITONSERVER_InferenceRequestCancel(handle);
}

EXPORTED void *TRITONSERVER_InferenceRequestDelete(void *handle) {
    if (requests_any()) {
        pthread_mutex_lock(&admission_lock);
        struct request *const request = requests_find(handle);
        if (request != NULL) {
            waiting_leave(request);
            admission_uncount(request);
            requests_remove(request);
        }
        pthread_mutex_unlock(&admission_lock);
    }
    return real_TRITONSERVER_InferenceRequestDelete(handle);
}

/* Those that wait have not begun, and the models are about to go: they hear so at once. */
EXPORTED void *TRITONSERVER_ServerStop(void *server) {
    waiting_close();
    return real_TRITONSERVER_ServerStop(server);
}
