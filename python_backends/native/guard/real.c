#include "real.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Found at the first call, not in a constructor: other libraries' constructors may come earlier. */
static void find(_Atomic(void *) *kept, const char *name, void *function) {
    void *found = atomic_load_explicit(kept, memory_order_acquire);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, name);
        if (found == NULL) {
            abort();
        }
        atomic_store_explicit(kept, found, memory_order_release);
    }
    /* ISO C has no conversion from an object's pointer to a function's. */
    memcpy(function, &found, sizeof found);
}

#define REAL(result, name, parameters, arguments) \
    result real_##name parameters {               \
        static _Atomic(void *) kept;              \
        result(*function) parameters;             \
        find(&kept, #name, &function);            \
        return function arguments;                \
    }

REAL(int, accept, (int listener, struct sockaddr *address, socklen_t *length),
     (listener, address, length))
REAL(int, accept4, (int listener, struct sockaddr *address, socklen_t *length, int flags),
     (listener, address, length, flags))
REAL(int, close, (int descriptor), (descriptor))
REAL(ssize_t, recvmsg, (int descriptor, struct msghdr *message, int flags),
     (descriptor, message, flags))
REAL(ssize_t, sendmsg, (int descriptor, const struct msghdr *message, int flags),
     (descriptor, message, flags))
REAL(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
REAL(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
REAL(int, pthread_cond_clockwait,
     (pthread_cond_t * condition, pthread_mutex_t *mutex, clockid_t clock,
      const struct timespec *until),
     (condition, mutex, clock, until))
REAL(int, fchmod, (int descriptor, mode_t mode), (descriptor, mode))
REAL(char *, mkdtemp, (char *template), (template))
REAL(int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
REAL(uint32_t, TRITONSERVER_DataTypeByteSize, (unsigned datatype), (datatype))
REAL(void *, TRITONSERVER_InferenceRequestAddInput,
     (void *request, const char *name, unsigned datatype, const int64_t *shape,
      uint64_t dimensions),
     (request, name, datatype, shape, dimensions))
REAL(void *, TRITONSERVER_ErrorNew, (unsigned code, const char *message), (code, message))
REAL(unsigned, TRITONSERVER_ErrorCode, (void *error), (error))
REAL(const char *, TRITONSERVER_ErrorMessage, (void *error), (error))
REAL(void *, TRITONSERVER_InferenceResponseError, (void *response), (response))
REAL(void *, TRITONSERVER_InferenceRequestNew,
     (void **request, void *server, const char *model, int64_t version),
     (request, server, model, version))
REAL(void *, TRITONSERVER_ServerModelTransactionProperties,
     (void *server, const char *model, int64_t version, uint32_t *flags, void **more),
     (server, model, version, flags, more))
REAL(void *, TRITONSERVER_ServerModelMetadata,
     (void *server, const char *model, int64_t version, void **message),
     (server, model, version, message))
REAL(void *, TRITONSERVER_ServerModelConfig,
     (void *server, const char *model, int64_t version, uint32_t form, void **message),
     (server, model, version, form, message))
REAL(void, TRITONSERVER_ErrorDelete, (void *error), (error))
REAL(void *, TRITONSERVER_ServerInferAsync, (void *server, void *request, void *trace),
     (server, request, trace))
REAL(void *, TRITONSERVER_InferenceRequestSetReleaseCallback,
     (void *request, void (*release)(void *, uint32_t, void *), void *payload),
     (request, release, payload))
REAL(void *, TRITONSERVER_InferenceRequestAddRequestedOutput, (void *request, const char *name),
     (request, name))
REAL(void *, TRITONSERVER_InferenceRequestTimeoutMicroseconds,
     (void *request, uint64_t *timeout_us), (request, timeout_us))
REAL(void *, TRITONSERVER_InferenceRequestCancel, (void *request), (request))
REAL(void *, TRITONSERVER_InferenceRequestDelete, (void *request), (request))
REAL(void *, TRITONBACKEND_ResponseNew, (void **response, void *request), (response, request))
REAL(void *, TRITONBACKEND_ResponseSend, (void *response, uint32_t flags, void *error),
     (response, flags, error))
REAL(void *, TRITONSERVER_MessageSerializeToJson,
     (void *message, const char **json, size_t *length), (message, json, length))
REAL(void *, TRITONSERVER_MessageDelete, (void *message), (message))
REAL(void *, TRITONSERVER_ServerStop, (void *server), (server))
REAL(void *, TRITONSERVER_ServerLoadModel, (void *server, const char *model), (server, model))
REAL(void *, TRITONSERVER_ServerLoadModelWithParameters,
     (void *server, const char *model, const void **parameters, uint64_t count),
     (server, model, parameters, count))
REAL(void *, TRITONSERVER_ServerUnloadModel, (void *server, const char *model), (server, model))
REAL(void *, TRITONSERVER_ServerUnloadModelAndDependents, (void *server, const char *model),
     (server, model))
REAL(void *, TRITONSERVER_ServerPollModelRepository, (void *server), (server))
