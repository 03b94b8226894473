/* A server that is about to end takes no new calls, and goes on with those that it has: also with
   what an ensemble among them sends to its next step, which comes from Triton's library and not
   from the program. Without this a caller is told of models that were never there. */
#include "admission.h"
#include "guard.h"
#include "real.h"

#include <signal.h>
#include <stddef.h>

/* Of Triton's stable C interface: TRITONSERVER_ERROR_UNAVAILABLE. */
enum { UNAVAILABLE = 4 };

/* Triton's own words for it, which clients and proxies know: the request may be sent again. */
const char STOPPING[] =
    "Server is stopping, scheduler for model has stopped accepting new inference requests";

static atomic_bool stopping;

static void stop(int number) {
    (void)number;
    atomic_store_explicit(&stopping, true, memory_order_release);
}

void stopping_begin(void) {
    /* By default this signal is ignored: a server without the guard does not mind it. */
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGURG, &action, NULL);
}

static bool refused(const void *caller) {
    return atomic_load_explicit(&stopping, memory_order_acquire) && of_program(caller);
}

/* A call may have come in before the end began, and find the model gone after: it has not begun
 * either. */
static void *explained(void *error, const void *caller) {
    if (error == NULL || !refused(caller)) {
        return error;
    }
    real_TRITONSERVER_ErrorDelete(error);
    return real_TRITONSERVER_ErrorNew(UNAVAILABLE, STOPPING);
}

EXPORTED void *TRITONSERVER_InferenceRequestNew(void **request, void *server, const char *model,
                                                int64_t version) {
    if (refused(__builtin_return_address(0))) {
        return real_TRITONSERVER_ErrorNew(UNAVAILABLE, STOPPING);
    }
    void *const error = real_TRITONSERVER_InferenceRequestNew(request, server, model, version);
    if (error == NULL) {
        admission_made(*request, server, model);
    }
    return explained(error, __builtin_return_address(0));
}

/* What the front ends ask before they make a request of a call. */
EXPORTED void *TRITONSERVER_ServerModelTransactionProperties(void *server, const char *model,
                                                             int64_t version, uint32_t *flags,
                                                             void **more) {
    if (refused(__builtin_return_address(0))) {
        return real_TRITONSERVER_ErrorNew(UNAVAILABLE, STOPPING);
    }
    void *const error =
        real_TRITONSERVER_ServerModelTransactionProperties(server, model, version, flags, more);
    return explained(error, __builtin_return_address(0));
}

EXPORTED void *TRITONSERVER_ServerModelMetadata(void *server, const char *model, int64_t version,
                                                void **message) {
    if (refused(__builtin_return_address(0))) {
        return real_TRITONSERVER_ErrorNew(UNAVAILABLE, STOPPING);
    }
    void *const error = real_TRITONSERVER_ServerModelMetadata(server, model, version, message);
    return explained(error, __builtin_return_address(0));
}

EXPORTED void *TRITONSERVER_ServerModelConfig(void *server, const char *model, int64_t version,
                                              uint32_t form, void **message) {
    if (refused(__builtin_return_address(0))) {
        return real_TRITONSERVER_ErrorNew(UNAVAILABLE, STOPPING);
    }
    void *const error = real_TRITONSERVER_ServerModelConfig(server, model, version, form, message);
    return explained(error, __builtin_return_address(0));
}
