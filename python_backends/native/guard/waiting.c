/* Requests that wait until their model has room, in the order in which they came, and the thread
   that passes them on to Triton. No thread of a front end waits with them: to it they have begun.

   All that their makers are called back for is done by that thread, which holds no lock then: a
   front end may hold its own while it cancels, and Triton its own while it releases. */
#include "admission.h"
#include "guard.h"
#include "real.h"

#include <signal.h>
#include <time.h>

/* Of Triton's stable C interface. */
enum { UNAVAILABLE = 4, CANCELLED = 7, COMPLETE_FINAL = 1, RELEASE_ALL = 1 };
enum { NS_PER_US = 1000, NS_PER_S = 1000000000, LONGEST_CLOSING_S = 5 };

struct reason {
    unsigned code;
    const char *text;
};

/* Triton's own words for the same in a queue of its own; clients know that nothing has begun. */
static const struct reason EXPIRED = {UNAVAILABLE, "Request timeout expired"};
static const struct reason STOPPED = {UNAVAILABLE, STOPPING};
static const struct reason LEFT = {CANCELLED, "the request was cancelled while it waited to begin"};

/* No model has such an output, so Triton refuses a request that asks for it, in the same step in
   which it makes it able to be answered. */
static const char NO_OUTPUT[] = "\001";

pthread_mutex_t admission_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static struct model *limited; /* that have or had a limit */
static int64_t earliest_ns = INT64_MAX;
static bool is_started, is_closed, is_busy, is_any_cancelled;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

void waiting_news(void) {
    if (is_started) {
        pthread_cond_signal(&news);
    }
}

bool waiting_is_closed(void) {
    return is_closed;
}

/* A model's limit changed. */
void waiting_list(struct model *model) {
    pthread_mutex_lock(&admission_lock);
    if (!model->is_listed) {
        model->is_listed = true;
        model->next_limited = limited;
        limited = model;
    }
    waiting_news();
    pthread_mutex_unlock(&admission_lock);
}

static int64_t end_of(void *handle) {
    uint64_t timeout_us = 0;
    void *const error = real_TRITONSERVER_InferenceRequestTimeoutMicroseconds(handle, &timeout_us);
    if (error != NULL) {
        real_TRITONSERVER_ErrorDelete(error);
    }
    if (timeout_us == 0 || timeout_us > (uint64_t)INT64_MAX / (2 * NS_PER_US)) {
        return INT64_MAX;
    }
    return now_ns() + (int64_t)timeout_us * NS_PER_US;
}

void waiting_leave(struct request *request) {
    struct model *const model = request->model;
    if (request->stage != WAITING) {
        return;
    }
    struct request *before = NULL, *at = model->first;
    for (; at != request; at = at->next_waiting) {
        before = at;
    }
    *(before == NULL ? &model->first : &before->next_waiting) = request->next_waiting;
    if (model->last == request) {
        model->last = before;
    }
    request->stage = IDLE;
}

void waiting_cancel(struct request *request) {
    request->cancelled = true;
    is_any_cancelled = true;
    waiting_news();
}

static const struct reason *reason_of(const struct request *request, int64_t now) {
    return is_closed                  ? &STOPPED
           : request->cancelled       ? &LEFT
           : request->until_ns <= now ? &EXPIRED
                                      : NULL;
}

/* One that is to be refused; looked for where there may be one. */
static struct request *next_refused(const struct reason **reason) {
    const int64_t now = now_ns();
    if (!is_closed && !is_any_cancelled && now < earliest_ns) {
        return NULL;
    }
    int64_t earliest = INT64_MAX;
    for (struct model *model = limited; model != NULL; model = model->next_limited) {
        for (struct request *at = model->first; at != NULL; at = at->next_waiting) {
            if ((*reason = reason_of(at, now)) != NULL) {
                return at;
            }
            earliest = at->until_ns < earliest ? at->until_ns : earliest;
        }
    }
    earliest_ns = earliest;
    is_any_cancelled = false;
    return NULL;
}

static struct request *next_admitted(void) {
    for (struct model *model = limited; model != NULL; model = model->next_limited) {
        if (model->first != NULL && admission_has_room(model)) {
            return model->first;
        }
    }
    return NULL;
}

/* As Triton answers what it refuses after it has begun. */
static void answer(void *handle, void *error) {
    void *response = NULL;
    void *failure = real_TRITONBACKEND_ResponseNew(&response, handle);
    if (failure == NULL) {
        failure = real_TRITONBACKEND_ResponseSend(response, COMPLETE_FINAL, error);
    }
    if (failure != NULL) {
        real_TRITONSERVER_ErrorDelete(failure);
    }
}

/* To Triton, and NULL if it took the request. A trace that it did not see ends with its caller. */
static void *hand_over(const struct request *request, const struct reason *reason) {
    if (reason == NULL) {
        return real_TRITONSERVER_ServerInferAsync(request->server, request->handle, request->trace);
    }
    void *error = real_TRITONSERVER_InferenceRequestAddRequestedOutput(request->handle, NO_OUTPUT);
    if (error != NULL) {
        real_TRITONSERVER_ErrorDelete(error);
    }
    error = real_TRITONSERVER_ServerInferAsync(request->server, request->handle, NULL);
    if (error != NULL) {
        real_TRITONSERVER_ErrorDelete(error);
        error = real_TRITONSERVER_ErrorNew(reason->code, reason->text);
    }
    return error;
}

/* It may be released and gone by now, or another request have its handle. */
static void taken(const struct request *before) {
    struct request *const request = requests_find(before->handle);
    if (request == NULL || request->serial != before->serial || request->stage != PASSED_ON) {
        return;
    }
    request->stage = RUNNING;
    if (request->cancelled) {
        void *const error = real_TRITONSERVER_InferenceRequestCancel(request->handle);
        if (error != NULL) {
            real_TRITONSERVER_ErrorDelete(error);
        }
    }
}

static void pass_on(struct request *request, const struct reason *reason) {
    waiting_leave(request);
    request->stage = PASSED_ON;
    admission_count(request);
    const struct request copy = *request;
    pthread_mutex_unlock(&admission_lock);
    void *const error = hand_over(&copy, reason);
    pthread_mutex_lock(&admission_lock);
    if (error == NULL) {
        taken(&copy);
        return;
    }
    request->stage = IDLE;
    admission_uncount(request);
    pthread_mutex_unlock(&admission_lock);
    answer(copy.handle, error);
    real_TRITONSERVER_ErrorDelete(error);
    copy.release(copy.handle, RELEASE_ALL, copy.release_payload);
    pthread_mutex_lock(&admission_lock);
}

static void await_news(void) {
    if (earliest_ns == INT64_MAX) {
        pthread_cond_wait(&news, &admission_lock);
        return;
    }
    const struct timespec until = {earliest_ns / NS_PER_S, earliest_ns % NS_PER_S};
    real_pthread_cond_clockwait(&news, &admission_lock, CLOCK_MONOTONIC, &until);
}

static void *run(void *unused) {
    (void)unused;
    pthread_mutex_lock(&admission_lock);
    for (;;) {
        const struct reason *reason = NULL;
        struct request *request = next_refused(&reason);
        request = request != NULL ? request : next_admitted();
        is_busy = request != NULL;
        if (is_busy) {
            pass_on(request, reason);
        } else {
            pthread_cond_broadcast(&emptied);
            await_news();
        }
    }
    return NULL;
}

static bool start(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = is_started || pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

/* False where there can be no thread to pass it on. */
bool waiting_begin(struct request *request) {
    if (!is_started && !start()) {
        return false;
    }
    struct model *const model = request->model;
    request->stage = WAITING;
    request->until_ns = end_of(request->handle);
    request->next_waiting = NULL;
    *(model->first == NULL ? &model->first : &model->last->next_waiting) = request;
    model->last = request;
    if (request->until_ns < earliest_ns) {
        earliest_ns = request->until_ns;
    }
    waiting_news();
    return true;
}

static bool is_any_waiting(void) {
    for (const struct model *model = limited; model != NULL; model = model->next_limited) {
        if (model->first != NULL) {
            return true;
        }
    }
    return false;
}

/* Refuse those that wait, and let nobody wait from now on. */
void waiting_close(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LONGEST_CLOSING_S;
    pthread_mutex_lock(&admission_lock);
    is_closed = true;
    waiting_news();
    int error = 0;
    while (error == 0 && (is_any_waiting() || is_busy)) {
        error = real_pthread_cond_clockwait(&emptied, &admission_lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&admission_lock);
}
