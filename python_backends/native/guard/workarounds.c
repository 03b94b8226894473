/* Faults of Triton 2.51 that one request without a key sets off, each kept from happening at the
   edge of the program. Newer servers have them mended, and what is done here does those no harm. */
#include "guard.h"
#include "real.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of Triton's stable C interface: TRITONSERVER_TYPE_BYTES, TRITONSERVER_ERROR_INVALID_ARG. */
enum { TYPE_BYTES = 13, INVALID_ARGUMENT = 3 };

static const char STRICT_ERRORS[] = "\0triton_grpc_error";

static uintptr_t program_begin, program_end;

/* Overwrite a byte of a part of the program that is mapped for reading. */
static void overwrite(char *at, char value) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *const start = (void *)((uintptr_t)at & ~(page - 1));
    if (mprotect(start, page, PROT_READ | PROT_WRITE) == 0) {
        *at = value;
        mprotect(start, page, PROT_READ);
    }
}

/* A stream that asks for `triton_grpc_error` ends the server at its first error: it goes on to use
   what it has freed (server#8708). No request's metadata can have a name with a capital letter (RFC
   9113, 8.2.1), so that the server now never finds it, and answers errors as in any other stream.
 */
static void forget_strict_errors(char *begin, size_t length) {
    char *const name = memmem(begin, length, STRICT_ERRORS, sizeof STRICT_ERRORS);
    if (name != NULL) {
        overwrite(name + 1, 'T');
    }
}

static int look_at_program(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    program_begin = UINTPTR_MAX;
    for (size_t at = 0; at < object->dlpi_phnum; at++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[at];
        const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD) {
            continue;
        }
        program_begin = begin < program_begin ? begin : program_begin;
        program_end = begin + part->p_memsz > program_end ? begin + part->p_memsz : program_end;
        if (part->p_flags == PF_R) {
            forget_strict_errors((char *)begin, part->p_filesz);
        }
    }
    return 1; /* the first object is the program (dl_iterate_phdr(3)), the others do not matter */
}

bool of_program(const void *address) {
    return (uintptr_t)address >= program_begin && (uintptr_t)address < program_end;
}

__attribute__((constructor)) static void work_around(void) {
    dl_iterate_phdr(look_at_program, NULL);
}

/* The program divides by this where a client wants a tensor's values as classes, also by the 0 that
   stands for values of any length (server#8267). With 1 it comes to its own refusal of such
   tensors. All its other uses look at the type before. Backends and libraries get what they always
   got. */
EXPORTED uint32_t TRITONSERVER_DataTypeByteSize(unsigned datatype) {
    if (datatype == TYPE_BYTES && of_program(__builtin_return_address(0))) {
        return 1;
    }
    return real_TRITONSERVER_DataTypeByteSize(datatype);
}

/* The size of a batch is cut to 32 bits: 2^32 becomes a batch of none, whose request is never
   answered. A negative size is read as one near 2^64. Both are refused in words. */
EXPORTED void *TRITONSERVER_InferenceRequestAddInput(void *request, const char *name,
                                                     unsigned datatype, const int64_t *shape,
                                                     uint64_t dimensions) {
    for (uint64_t at = 0; at < dimensions; at++) {
        if (shape[at] < 0 || shape[at] > INT32_MAX) {
            char message[256];
            snprintf(message, sizeof message,
                     "input '%.100s': dimension %llu of its shape is %lld; 0 to %d are taken", name,
                     (unsigned long long)at, (long long)shape[at], INT32_MAX);
            return real_TRITONSERVER_ErrorNew(INVALID_ARGUMENT, message);
        }
    }
    return real_TRITONSERVER_InferenceRequestAddInput(request, name, datatype, shape, dimensions);
}
