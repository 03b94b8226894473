/* A library of operators for ONNX Runtime: `tests.Scale`, whose output is its input times its attribute `factor`.
 *
 * It declares the part of ONNX Runtime's C interface that it uses (onnxruntime_c_api.h): a table of functions that only
 * grows, and the operator as version 10 has it. With NO_ENTRY the library lacks the function that ONNX Runtime calls,
 * with NEEDS_PYTHON it needs a symbol of Python, with REFUSES it refuses to be registered, and with DIES it ends the
 * process.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { kFloat = 1, kRequired = 0, kVersion = 10 };

typedef void* Status;
typedef struct {
  const void* const* (*table)(uint32_t version);
  const char* (*version)(void);
} ApiBase;

static const void* const* g_api;

/* Places of functions in the table. */
enum {
  CREATE_STATUS = 0,
  CREATE_DOMAIN = 26,
  ADD_TO_DOMAIN = 27,
  ADD_DOMAIN = 28,
  TENSOR_DATA = 51,
  DIMS_COUNT = 61,
  DIMS = 62,
  ELEMENT_COUNT = 64,
  SHAPE_OF = 65,
  ATTRIBUTE_FLOAT = 85,
  INPUT = 90,
  OUTPUT = 91,
  RELEASE_SHAPE = 99,
};

struct operator {
  uint32_t version;
  void* (*create)(const struct operator*, const void* api, const void* info);
  const char* (*name)(const struct operator*);
  const char* (*provider)(const struct operator*);
  int (*input_type)(const struct operator*, size_t);
  size_t (*input_count)(const struct operator*);
  int (*output_type)(const struct operator*, size_t);
  size_t (*output_count)(const struct operator*);
  void (*compute)(void* kernel, void* context);
  void (*destroy)(void* kernel);
  int (*input_kind)(const struct operator*, size_t);
  int (*output_kind)(const struct operator*, size_t);
};

static void* create(const struct operator* self, const void* api, const void* info) {
  (void)self, (void)api;
  float* factor = malloc(sizeof *factor);
  Status (*attribute)(const void*, const char*, float*) = g_api[ATTRIBUTE_FLOAT];
  if (factor == NULL || attribute(info, "factor", factor) != NULL) abort();
  return factor;
}

static void compute(void* kernel, void* context) {
  Status (*input_of)(const void*, size_t, const void**) = g_api[INPUT];
  Status (*output_of)(void*, size_t, const int64_t*, size_t, void**) = g_api[OUTPUT];
  Status (*shape_of)(const void*, void**) = g_api[SHAPE_OF];
  Status (*dims_count)(const void*, size_t*) = g_api[DIMS_COUNT];
  Status (*dims_of)(const void*, int64_t*, size_t) = g_api[DIMS];
  Status (*element_count)(const void*, size_t*) = g_api[ELEMENT_COUNT];
  Status (*data_of)(const void*, void**) = g_api[TENSOR_DATA];
  void (*release_shape)(void*) = g_api[RELEASE_SHAPE];
  const void* input = NULL;
  void *output = NULL, *shape = NULL, *from = NULL, *to = NULL;
  size_t rank = 0, count = 0;
  int64_t dims[8];
  if (input_of(context, 0, &input) || shape_of(input, &shape) || dims_count(shape, &rank) || rank > 8 ||
      dims_of(shape, dims, rank) || element_count(shape, &count) || output_of(context, 0, dims, rank, &output) ||
      data_of(input, &from) || data_of(output, &to))
    abort();
  release_shape(shape);
  for (size_t place = 0; place < count; ++place) ((float*)to)[place] = ((float*)from)[place] * *(float*)kernel;
}

static const char* name(const struct operator* self) { return (void)self, "Scale"; }
static const char* provider(const struct operator* self) { return (void)self, NULL; }
static int type(const struct operator* self, size_t place) { return (void)self, (void)place, kFloat; }
static size_t one(const struct operator* self) { return (void)self, 1; }
static int kind(const struct operator* self, size_t place) { return (void)self, (void)place, kRequired; }

static const struct operator g_scale = {kVersion, create, name,    provider, type, one,
                                        type,     one,    compute, free,     kind, kind};

#ifdef NEEDS_PYTHON
extern int PyErr_CheckSignals(void);
int ask_python(void) { return PyErr_CheckSignals(); }
#endif

#ifndef NO_ENTRY
Status RegisterCustomOps(void* options, const ApiBase* base) {
#ifdef DIES
  abort();
#endif
  g_api = base->table(kVersion);
#ifdef REFUSES
  Status (*create_status)(int, const char*) = g_api[CREATE_STATUS];
  return create_status(1, "no license for these operators");
#endif
  Status (*create_domain)(const char*, void**) = g_api[CREATE_DOMAIN];
  Status (*add)(void*, const struct operator*) = g_api[ADD_TO_DOMAIN];
  Status (*add_domain)(void*, void*) = g_api[ADD_DOMAIN];
  static void* domain;
  Status failed = domain == NULL ? create_domain("tests", &domain) : NULL;
  static int is_added;
  if (failed == NULL && !is_added) failed = add(domain, &g_scale), is_added = 1;
  return failed == NULL ? add_domain(options, domain) : failed;
}
#endif
