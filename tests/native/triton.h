/* Triton's C interface, as far as `frontend` uses it, and what `triton.c` has besides it. */
#include <stdbool.h>
#include <stdint.h>

void* TRITONSERVER_ServerLoadModel(void* server, const char* model);
void* TRITONSERVER_ServerStop(void* server);
void* TRITONSERVER_ServerInferAsync(void* server, void* request, void* trace);
void* TRITONSERVER_InferenceRequestNew(void** request, void* server, const char* model, int64_t version);
void* TRITONSERVER_InferenceRequestSetReleaseCallback(void* request, void (*release)(void*, uint32_t, void*),
                                                      void* payload);
void* TRITONSERVER_InferenceRequestCancel(void* request);
void* TRITONSERVER_InferenceRequestDelete(void* request);
void TRITONSERVER_ErrorDelete(void* error);

/* A request to be. `answered` is called with the code of its answer. */
void prepare(void* request, uint64_t timeout_us, bool is_invalid, void (*answered)(unsigned code));
/* The limit in the model's configuration. */
void configure(unsigned limit);
/* Whether requests are answered. */
void answer(bool does);
/* The most requests that there were at once since the last call. */
unsigned most_at_once(void);
