/* The functions of libc and libtritonserver behind those that the guard puts before them. */
#ifndef TRITONKIT_GUARD_REAL_H
#define TRITONKIT_GUARD_REAL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

int real_accept(int listener, struct sockaddr *address, socklen_t *length);
int real_accept4(int listener, struct sockaddr *address, socklen_t *length, int flags);
int real_close(int descriptor);
ssize_t real_recvmsg(int descriptor, struct msghdr *message, int flags);
ssize_t real_sendmsg(int descriptor, const struct msghdr *message, int flags);
int real_pthread_mutex_lock(pthread_mutex_t *mutex);
int real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int real_pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                const struct timespec *until);
int real_fchmod(int descriptor, mode_t mode);
uint32_t real_TRITONSERVER_DataTypeByteSize(unsigned datatype);
void *real_TRITONSERVER_InferenceRequestAddInput(void *request, const char *name, unsigned datatype,
                                                 const int64_t *shape, uint64_t dimensions);
void *real_TRITONSERVER_InferenceRequestNew(void **request, void *server, const char *model,
                                            int64_t version);
void *real_TRITONSERVER_ServerModelTransactionProperties(void *server, const char *model,
                                                         int64_t version, uint32_t *flags,
                                                         void **more);
void *real_TRITONSERVER_ServerModelMetadata(void *server, const char *model, int64_t version,
                                            void **message);
void *real_TRITONSERVER_ServerModelConfig(void *server, const char *model, int64_t version,
                                          uint32_t form, void **message);
unsigned real_TRITONSERVER_ErrorCode(void *error);
const char *real_TRITONSERVER_ErrorMessage(void *error);
void *real_TRITONSERVER_InferenceResponseError(void *response);
void *real_TRITONSERVER_ErrorNew(unsigned code, const char *message);
void real_TRITONSERVER_ErrorDelete(void *error);
void *real_TRITONSERVER_ServerInferAsync(void *server, void *request, void *trace);
void *real_TRITONSERVER_InferenceRequestSetReleaseCallback(
    void *request, void (*release)(void *, uint32_t, void *), void *payload);
void *real_TRITONSERVER_InferenceRequestAddRequestedOutput(void *request, const char *name);
void *real_TRITONSERVER_InferenceRequestTimeoutMicroseconds(void *request, uint64_t *timeout_us);
void *real_TRITONSERVER_InferenceRequestCancel(void *request);
void *real_TRITONSERVER_InferenceRequestDelete(void *request);
void *real_TRITONBACKEND_ResponseNew(void **response, void *request);
void *real_TRITONBACKEND_ResponseSend(void *response, uint32_t flags, void *error);
void *real_TRITONSERVER_MessageSerializeToJson(void *message, const char **json, size_t *length);
void *real_TRITONSERVER_MessageDelete(void *message);
void *real_TRITONSERVER_ServerStop(void *server);
void *real_TRITONSERVER_ServerLoadModel(void *server, const char *model);
void *real_TRITONSERVER_ServerLoadModelWithParameters(void *server, const char *model,
                                                      const void **parameters, uint64_t count);
void *real_TRITONSERVER_ServerUnloadModel(void *server, const char *model);
void *real_TRITONSERVER_ServerUnloadModelAndDependents(void *server, const char *model);
void *real_TRITONSERVER_ServerPollModelRepository(void *server);
char *real_mkdtemp(char *template);
int real_shm_open(const char *name, int flags, mode_t mode);

#endif
